/* A CUDA device that holds no data: the runtime calls that answer something. All other calls of torch are answered with success by
 * generated stubs (see build.py). Kernels do nothing; what is copied from the device is zeros, and a single byte is 1, so that a flag
 * which a kernel would have set reads as true (STUB_FLAG=0: as false).
 *
 * STUB_CAPABILITY=8.0  STUB_MEMORY_BYTES=…  STUB_PROCESSORS=108  STUB_THREADS=2048  STUB_BLOCKS=32 (threads and blocks
 * per multiprocessor)
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t GRANULE = 2ul << 20;
static char *next_address = (char *)0x700000000000ul;
static size_t used_bytes = 0;

static size_t number(const char *name, size_t otherwise) {
  const char *text = getenv(name);
  return text ? strtoull(text, NULL, 10) : otherwise;
}

static size_t total_bytes(void) { return number("STUB_MEMORY_BYTES", 141ul << 30); }

static int capability(int minor) {
  const char *text = getenv("STUB_CAPABILITY");
  const char *dot = text ? strchr(text, '.') : NULL;
  if (!text) return minor ? 0 : 8;
  return minor ? (dot ? atoi(dot + 1) : 0) : atoi(text);
}

static size_t up(size_t bytes) { return (bytes + GRANULE - 1) / GRANULE * GRANULE; }

/* --- memory ------------------------------------------------------------------------------------------------------------- */

struct segment { char *address; size_t bytes; };
static struct segment segments[1 << 18];
static int segment_count = 0;

cudaError_t cudaMalloc(void **address, size_t bytes) {
  *address = NULL;
  if (used_bytes + bytes > total_bytes()) return cudaErrorMemoryAllocation;
  segments[segment_count].address = next_address;
  segments[segment_count++].bytes = bytes;
  *address = next_address;
  next_address += up(bytes) + GRANULE;
  used_bytes += bytes;
  return cudaSuccess;
}

cudaError_t cudaFree(void *address) {
  for (int at = segment_count - 1; at >= 0; at--) {
    if (segments[at].address != address) continue;
    used_bytes -= segments[at].bytes;
    segments[at] = segments[--segment_count];
    break;
  }
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all_bytes) {
  *all_bytes = total_bytes();
  *free_bytes = total_bytes() - used_bytes;
  return cudaSuccess;
}

/* Memory that host and device share is the host's here: what torch reports of the device leaves it out. */
cudaError_t cudaMallocManaged(void **address, size_t bytes, unsigned flags) { return (*address = calloc(1, bytes ? bytes : 1)) ? cudaSuccess : cudaErrorMemoryAllocation; }
cudaError_t cudaHostAlloc(void **address, size_t bytes, unsigned flags) { return cudaMallocManaged(address, bytes, flags); }
cudaError_t cudaMallocHost(void **address, size_t bytes) { return cudaMallocManaged(address, bytes, 0); }
cudaError_t cudaFreeHost(void *address) { free(address); return cudaSuccess; }

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
  if (kind == cudaMemcpyDeviceToHost) memset(to, bytes == 1 && number("STUB_FLAG", 1), bytes);
  return cudaSuccess;
}

/* --- what the device is --------------------------------------------------------------------------------------------------- */

cudaError_t cudaGetDeviceCount(int *count) { *count = 1; return cudaSuccess; }
cudaError_t cudaGetDevice(int *device) { *device = 0; return cudaSuccess; }
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device) { *device = 0; return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *version) { *version = 13000; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { *version = 13000; return cudaSuccess; }
cudaError_t cudaDeviceCanAccessPeer(int *can, int one, int other) { *can = 0; return cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t error) { return "an error of the stub driver"; }
const char *cudaGetErrorName(cudaError_t error) { return "stub"; }

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
  memset(properties, 0, sizeof *properties);
  strcpy(properties->name, "stub");
  properties->major = capability(0);
  properties->minor = capability(1);
  properties->totalGlobalMem = total_bytes();
  properties->multiProcessorCount = number("STUB_PROCESSORS", 108);
  properties->maxThreadsPerMultiProcessor = number("STUB_THREADS", 2048);
  properties->maxThreadsPerBlock = 1024;
  properties->warpSize = 32;
  properties->sharedMemPerBlock = 49152;
  properties->sharedMemPerBlockOptin = 166912;
  properties->sharedMemPerMultiprocessor = 167936;
  properties->regsPerBlock = 65536;
  properties->regsPerMultiprocessor = 65536;
  properties->maxBlocksPerMultiProcessor = number("STUB_BLOCKS", 32);
  properties->l2CacheSize = 40 << 20;
  properties->maxGridSize[0] = 2147483647;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
  properties->maxThreadsDim[2] = 64;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
  struct cudaDeviceProp properties;
  cudaGetDeviceProperties(&properties, device);
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = properties.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = properties.minor; break;
    case cudaDevAttrMultiProcessorCount: *value = properties.multiProcessorCount; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = properties.sharedMemPerBlockOptin; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = properties.sharedMemPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = properties.sharedMemPerMultiprocessor; break;
    case cudaDevAttrMaxGridDimX: *value = properties.maxGridSize[0]; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = properties.maxThreadsPerBlock; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = properties.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrWarpSize: *value = properties.warpSize; break;
    case cudaDevAttrL2CacheSize: *value = properties.l2CacheSize; break;
    default: *value = 1;
  }
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function) {
  memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->binaryVersion = attributes->ptxVersion = capability(0) * 10 + capability(1);
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads, size_t shared) { *blocks = 2; return cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads, size_t shared, unsigned flags) { *blocks = 2; return cudaSuccess; }

/* --- streams and events: everything is done as soon as it is asked for ------------------------------------------------------ */

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) { *status = cudaStreamCaptureStatusNone; return cudaSuccess; }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
  static long last = 0x1000;
  *stream = (cudaStream_t)(last += 16);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) { *event = (cudaEvent_t)0x10; return cudaSuccess; }

/* --- the driver's virtual memory, which expandable segments ask for by name -------------------------------------------------- */

typedef unsigned long long handle_t;
static size_t page_bytes[1 << 20];
static handle_t last_handle = 0;

static int succeed(void) { return 0; }
static int reserve_addresses(handle_t *address, size_t bytes, size_t alignment, handle_t hint, handle_t flags) {
  *address = (handle_t)next_address;
  next_address += up(bytes) + GRANULE;
  return 0;
}
static int create_page(handle_t *handle, size_t bytes, const void *properties, handle_t flags) {
  const int out_of_memory = 2;
  if (used_bytes + bytes > total_bytes()) return out_of_memory;
  page_bytes[*handle = ++last_handle] = bytes;
  used_bytes += bytes;
  return 0;
}
static int release_page(handle_t handle) { used_bytes -= page_bytes[handle]; return 0; }
static int context_state(int device, unsigned *flags, int *active) { *flags = 0; *active = 1; return 0; }
static int error_string(int error, const char **text) { *text = "an error of the stub driver"; return 0; }
static int device_attribute(int *value, int attribute, int device) { *value = 1; return 0; }
static int device_of_ordinal(int *device, int ordinal) { *device = ordinal; return 0; }
static int granularity(size_t *bytes, const void *properties, int option) { *bytes = GRANULE; return 0; }
static int current_context(void **context) { *context = (void *)1; return 0; }

static const struct { const char *name; void *function; } driver[] = {
    {"cuMemAddressReserve", reserve_addresses}, {"cuMemCreate", create_page}, {"cuMemRelease", release_page},
    {"cuDevicePrimaryCtxGetState", context_state}, {"cuGetErrorString", error_string}, {"cuDeviceGetAttribute", device_attribute},
    {"cuDeviceGet", device_of_ordinal}, {"cuMemGetAllocationGranularity", granularity}, {"cuCtxGetCurrent", current_context},
};

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long long flags, enum cudaDriverEntryPointQueryResult *result) {
  *function = (void *)succeed;
  for (size_t at = 0; at < sizeof driver / sizeof *driver; at++)
    if (!strcmp(name, driver[at].name)) *function = driver[at].function;
  if (result) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, enum cudaDriverEntryPointQueryResult *result) {
  return cudaGetDriverEntryPointByVersion(name, function, 13000, flags, result);
}

/* --- libcuda, where it is linked by name --------------------------------------------------------------------------------------- */

int cuCtxGetCurrent(void **context) { return current_context(context); }
int cuDeviceGet(int *device, int ordinal) { return device_of_ordinal(device, ordinal); }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { return cudaDeviceGetAttribute(value, (enum cudaDeviceAttr)attribute, device); }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { return context_state(device, flags, active); }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuGetErrorString(int error, const char **text) { return error_string(error, text); }

/* --- NVML: a device that no process can be asked about --------------------------------------------------------------------------- */

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *processes) { *count = 0; return 0; }
int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, void *processes) { *count = 0; return 0; }
int nvmlDeviceGetNvLinkRemoteDeviceType(void) { return 3; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void) { return 3; }
int nvmlDeviceGetGpuFabricInfoV(void) { return 3; }
int nvmlSystemGetCudaDriverVersion_v2(void) { return 3; }

/* --- cuBLAS ----------------------------------------------------------------------------------------------------------------------- */

int cublasCreate_v2(void **handle) {
  static long last = 0x5000;
  *handle = (void *)(last += 64);
  return 0;
}
int cublasGetMathMode(void *handle, int *mode) { *mode = 0; return 0; }
int cublasGetPointerMode_v2(void *handle, int *mode) { *mode = 0; return 0; }
size_t cublasLtGetVersion(void) { return 130100; }
int cublasLtMatmulDescCreate(void **made, int compute, int scale) { *made = malloc(64); return 0; }
int cublasLtMatmulPreferenceCreate(void **made) { *made = malloc(64); return 0; }
int cublasLtMatrixLayoutCreate(void **made, int type, unsigned long long rows, unsigned long long columns, long long leading) { *made = malloc(64); return 0; }

/* One algorithm, found at once, that needs no workspace. */
struct heuristic { unsigned long long algorithm[8]; size_t workspace_bytes; int state; float waves; int reserved[4]; };
int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d, void *preference, int wanted, struct heuristic *results, int *found) {
  memset(results, 0, sizeof *results);
  *found = 1;
  return 0;
}
