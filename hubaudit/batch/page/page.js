// The report's table: every word of it comes from strangers' repositories, so text only ever becomes text nodes.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = Object.fromEntries(data.columns.map((name, place) => [name, place]));
  const rows = data.rows;
  const rowHeight = 28;
  const spare = 12;
  const verdictOrder = { fits: 0, tight: 1, no: 2, unknown: 3 };
  const endings = {
    audited: "audited", later: "failed for now", access: "needs access", never: "cannot be audited", bug: "met a bug",
  };
  const start = { q: "", w: "0", state: "", device: "", verdict: "", view: "table", sort: "", dir: "asc", open: "" };
  const asked = { ...start };
  let shown = [];

  const $ = (id) => document.getElementById(id);
  const word = (entry) => (typeof entry === "number" ? data.words[entry] : entry);

  function element(tag, text, name) {
    const made = document.createElement(tag);
    if (text !== undefined && text !== null) made.textContent = text;
    if (name) made.className = name;
    return made;
  }

  // --- numbers for people ---------------------------------------------------------------------------------------

  function bytes(value) {
    if (value === null || value === undefined) return "";
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let unit = 0;
    let size = value;
    while (Math.abs(size) >= 1024 && unit < units.length - 1) { size /= 1024; unit += 1; }
    return `${unit ? size.toFixed(2) : size} ${units[unit]}`;
  }

  function count(value) {
    if (value === null || value === undefined) return "";
    for (const [size, unit] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]]) {
      if (value >= size) return `${(value / size).toFixed(2)} ${unit}`;
    }
    return String(value);
  }

  const plain = (value) => (value === null || value === undefined ? "" : typeof value === "number" ? value.toLocaleString("en") : String(value));

  // --- columns --------------------------------------------------------------------------------------------------

  const audit = (row) => row[at.audits][Number(asked.w)] || null;
  const total = (row) => { const one = audit(row); return one && one.total !== undefined ? one.total : null; };
  // A sum that had to leave something out is a least.
  const least = (one, text) => (one && one.omitted ? `at least ${text}` : text);
  const part = (row, id) => {
    const one = audit(row);
    const found = one && one.parts ? one.parts.find((entry) => word(entry[0]) === id) : undefined;
    return found ? found[1] : null;
  };
  const fit = (row, device) => { const one = audit(row); return one && one.fit ? one.fit[device] || null : null; };

  const columnOf = (name) => (row) => row[at[name]];
  const nameColumn = { id: "name", title: "model", value: columnOf("name"), text: plain };
  const parametersColumn = { id: "parameters", title: "parameters", value: columnOf("parameters"), text: count, isNumber: true };
  const totalColumn = { id: "total", title: "total", value: total, text: bytes, isNumber: true };
  const numbers = [
    nameColumn,
    parametersColumn,
    totalColumn,
    { id: "weights", title: "weights", value: (row) => part(row, "weights"), text: bytes, isNumber: true },
    { id: "kv_cache", title: "KV cache", value: (row) => part(row, "kv_cache"), text: bytes, isNumber: true },
    { id: "file_bytes", title: "on disk", value: columnOf("file_bytes"), text: bytes, isNumber: true },
    { id: "layers", title: "layers", value: columnOf("layers"), text: plain, isNumber: true },
    { id: "dtype", title: "dtype", value: (row) => [row[at.dtype], row[at.quantization]].filter(Boolean).join(" ") || null, text: plain },
    { id: "architecture", title: "architecture", value: columnOf("architecture"), text: plain },
    { id: "findings", title: "findings", value: (row) => row[at.findings].length, text: plain, isNumber: true },
    { id: "state", title: "ended", value: columnOf("state"), text: (value) => endings[value] },
  ];
  const fits = [
    nameColumn,
    parametersColumn,
    totalColumn,
    ...data.devices.map((name, place) => ({
      id: `fit ${name}`, title: name, value: (row) => fit(row, place), verdict: true,
      rank: (one) => (one ? verdictOrder[one.verdict] * 1e20 - one.headroom : null),
    })),
  ];
  const columns = () => (asked.view === "fits" ? fits : numbers);

  // --- which rows, in which order -------------------------------------------------------------------------------

  const haystacks = new Map();
  function haystack(row) {
    let text = haystacks.get(row);
    if (text === undefined) {
      const names = ["name", "architecture", "model_type", "library", "dtype", "quantization", "format", "error"];
      text = names.map((name) => row[at[name]] || "").join("\n").toLowerCase();
      haystacks.set(row, text);
    }
    return text;
  }

  function matches(row, words) {
    if (asked.state && row[at.state] !== asked.state) return false;
    if (asked.device !== "" && asked.verdict) {
      const one = fit(row, Number(asked.device));
      if (!one || one.verdict !== asked.verdict) return false;
    }
    return words.every((one) => haystack(row).includes(one));
  }

  function compare(left, right) {
    if (left === null || left === undefined || right === null || right === undefined) {
      return (left === null || left === undefined ? 1 : 0) - (right === null || right === undefined ? 1 : 0);
    }
    if (typeof left === "number" && typeof right === "number") return left - right;
    const [a, b] = [String(left).toLowerCase(), String(right).toLowerCase()];
    return a < b ? -1 : a > b ? 1 : 0;
  }

  function choose() {
    const words = asked.q.toLowerCase().split(/\s+/).filter(Boolean);
    shown = rows.filter((row) => matches(row, words));
    const column = columns().find((one) => one.id === asked.sort);
    if (!column) return;
    const key = column.rank ? (row) => column.rank(column.value(row)) : column.value;
    const sign = asked.dir === "desc" ? -1 : 1;
    const keyed = shown.map((row) => [key(row), row]);
    // What is not known stands last, whichever way the rest is sorted.
    keyed.sort(([a], [b]) => {
      const unknown = (a === null || a === undefined) || (b === null || b === undefined);
      return unknown ? compare(a, b) : sign * compare(a, b);
    });
    shown = keyed.map(([, row]) => row);
  }

  // --- drawing: of ten thousand rows, those in sight --------------------------------------------------------------

  function drawHead() {
    const line = element("tr");
    for (const column of columns()) {
      const cell = element("th", null, column.isNumber ? "number" : "");
      cell.scope = "col";
      cell.dataset.column = column.id;
      cell.setAttribute("aria-sort", asked.sort !== column.id ? "none" : asked.dir === "desc" ? "descending" : "ascending");
      const button = element("button", column.title);
      button.type = "button";
      button.addEventListener("click", () => {
        const again = asked.sort === column.id;
        ask({ sort: column.id, dir: again ? (asked.dir === "asc" ? "desc" : "asc") : column.isNumber ? "desc" : "asc" });
      });
      cell.append(button);
      line.append(cell);
    }
    $("table").tHead.replaceChildren(line);
  }

  function cellOf(column, row) {
    const value = column.value(row);
    const cell = element("td", null, column.isNumber ? "number" : "");
    if (column.verdict) {
      if (value) {
        const mark = element("span", value.verdict === "unknown" ? "?" : value.verdict, `verdict ${value.verdict}`);
        mark.title = room(value);
        cell.append(mark);
      }
    } else if (column.id === "name") {
      const button = element("button", value);
      button.type = "button";
      cell.append(button);
      cell.title = value;
    } else {
      cell.textContent = column.id === "total" && value !== null ? least(audit(row), column.text(value)) : column.text(value);
      if (column.id === "state" && value !== "audited") { cell.className = "failed"; cell.title = row[at.error] || ""; }
    }
    return cell;
  }

  function space(rowCount) {
    const line = element("tr", null, "space");
    const cell = element("td");
    cell.colSpan = columns().length;
    cell.style.height = `${rowCount * rowHeight}px`;
    line.append(cell);
    return line;
  }

  function drawRows() {
    const box = $("scroller");
    const first = Math.max(0, Math.floor(box.scrollTop / rowHeight) - spare);
    const last = Math.min(shown.length, Math.ceil((box.scrollTop + box.clientHeight) / rowHeight) + spare);
    const lines = [];
    if (first) lines.push(space(first));
    for (let place = first; place < last; place += 1) {
      const row = shown[place];
      const line = element("tr", null, row[at.name] === asked.open ? "picked" : "");
      line.dataset.at = place;
      line.append(...columns().map((column) => cellOf(column, row)));
      lines.push(line);
    }
    if (last < shown.length) lines.push(space(shown.length - last));
    $("table").tBodies[0].replaceChildren(...lines);
  }

  function drawHistogram() {
    const sizes = shown.map(total).filter((size) => size !== null && size > 0);
    const figure = $("histogram");
    figure.hidden = sizes.length === 0;
    if (!sizes.length) return;
    const steps = sizes.map((size) => Math.floor(Math.log2(size / 2 ** 20)));
    const low = steps.reduce((a, b) => Math.min(a, b));
    const high = steps.reduce((a, b) => Math.max(a, b));
    const bins = new Array(high - low + 1).fill(0);
    for (const step of steps) bins[step - low] += 1;
    const most = bins.reduce((a, b) => Math.max(a, b));
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const [width, height, base] = [1000, 96, 80];
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("preserveAspectRatio", "xMidYMid meet");
    svg.setAttribute("role", "img");
    const each = Math.min(90, width / bins.length);
    const left = (width - each * bins.length) / 2;
    const put = (tag, attributes, text) => {
      const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
      if (text !== undefined) made.textContent = text;
      svg.append(made);
      return made;
    };
    put("line", { x1: left, x2: left + each * bins.length, y1: base + 0.5, y2: base + 0.5 });
    bins.forEach((number, place) => {
      const tall = number ? Math.max(1, (number / most) * (base - 16)) : 0;
      const bar = put("rect", { x: left + place * each + 1, y: base - tall, width: each - 2, height: tall, "data-count": number });
      const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
      title.textContent = `${number.toLocaleString("en")} from ${bytes(2 ** (place + low + 20))} to ${bytes(2 ** (place + low + 21))}`;
      bar.append(title);
      if (number) put("text", { x: left + (place + 0.5) * each, y: base - tall - 3 }, number.toLocaleString("en"));
      put("text", { x: left + place * each, y: height - 3 }, bytes(2 ** (place + low + 20)).replace(".00", ""));
    });
    svg.setAttribute("aria-label", `Histogram of the total memory of ${sizes.length} models`);
    figure.replaceChildren(element("figcaption", "models by total memory"), svg);
  }

  // --- one model's explanation ----------------------------------------------------------------------------------

  function pairs(list) {
    const made = element("dl");
    for (const [name, value] of list) {
      if (value !== null && value !== undefined && value !== "") made.append(element("dt", name), element("dd", value));
    }
    return made;
  }

  function explained(entry) {
    const [id, size, low, high, exactness, formula, inputs, sources] = entry;
    const known = Object.fromEntries(inputs.map(([name, value]) => [word(name), value]));
    const text = word(formula);
    const numbersIn = text.replace(/[A-Za-z_]\w*/g, (name) => (Object.hasOwn(known, name) ? String(known[name]) : name));
    const spread = low === high ? "" : `, ${bytes(low)} – ${bytes(high)}`;
    const box = element("div");
    box.append(element("h3", `${word(id)}: ${size.toLocaleString("en")} B = ${bytes(size)} (${word(exactness)}${spread})`));
    box.append(element("code", `= ${text}\n= ${numbersIn}`));
    const list = element("ul", null, "soft");
    list.append(...sources.map((source) => element("li", word(source))));
    box.append(list);
    return box;
  }

  function room(entry) {
    if (entry.verdict === "unknown") return entry.reason || "";
    return entry.headroom < 0 ? `${bytes(-entry.headroom)} too much` : `${bytes(entry.headroom)} left`;
  }

  function fitTable(one) {
    const table = element("table");
    one.fit.forEach((entry, place) => {
      if (!entry) return;
      const line = element("tr");
      const verdict = element("td");
      verdict.append(element("span", entry.verdict, `verdict ${entry.verdict}`));
      const most = entry.batch ? `batch up to ${plain(entry.batch)}, context up to ${plain(entry.context)}` : "";
      line.append(element("td", data.devices[place]), verdict, element("td", room(entry)), element("td", most), element("td", entry.verdict === "unknown" ? "" : entry.reason));
      table.append(line);
    });
    return table;
  }

  function drawDetail() {
    const box = $("detail");
    const row = rows.find((one) => one[at.name] === asked.open);
    box.hidden = !row;
    if (!row) { box.replaceChildren(); return; }
    const close = element("button", "close", "close");
    close.type = "button";
    close.addEventListener("click", () => ask({ open: "" }));
    const parts = [close, element("h2", row[at.name])];
    parts.push(pairs([
      ["ended", endings[row[at.state]]], ["why", row[at.error]], ["hint", row[at.hint]], ["commit", row[at.commit]],
      ["architecture", row[at.architecture]], ["type", row[at.model_type]], ["library", row[at.library]],
      ["parameters", plain(row[at.parameters])], ["active", plain(row[at.active])],
      ...["layers", "hidden_size", "attention_heads", "kv_heads", "max_positions"].map((name) => [name.replaceAll("_", " "), plain(row[at[name]])]),
      ["dtype", row[at.dtype]], ["quantization", row[at.quantization]], ["format", row[at.format]], ["on disk", bytes(row[at.file_bytes])],
    ]));
    const one = audit(row);
    if (one && one.error) parts.push(element("h3", data.workloads[Number(asked.w)]), element("p", one.error));
    if (one && one.parts) {
      const spread = one.omitted || one.low === one.high ? "" : ` (${bytes(one.low)} – ${bytes(one.high)})`;
      parts.push(element("h3", `${data.workloads[Number(asked.w)]}: ${least(one, bytes(one.total))}${spread}`), element("p", one.said, "soft"));
      if (one.omitted) parts.push(element("p", `not in it: ${one.omitted}`));
      if (one.fit.some(Boolean)) parts.push(fitTable(one));
      parts.push(...one.parts.map(explained));
    }
    if (row[at.findings].length) {
      const list = element("ul");
      list.append(...row[at.findings].map(([severity, rule, message]) => element("li", `${severity}: ${message} [${rule}]`)));
      parts.push(element("h3", "Findings"), list);
    }
    box.replaceChildren(...parts);
    box.scrollTop = 0;
  }

  // --- what is asked: kept in the address, so that a view can be linked to ------------------------------------------

  function draw(keepPlace) {
    choose();
    if (!keepPlace) $("scroller").scrollTop = 0;
    drawHead();
    drawRows();
    drawHistogram();
    drawDetail();
    const sum = shown.reduce((all, row) => all + (row[at.parameters] || 0), 0);
    $("count").textContent = `${shown.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} models, ${count(sum)} parameters`;
  }

  function ask(changes) {
    const before = { ...asked };
    Object.assign(asked, changes);
    const set = Object.entries(asked).filter(([name, value]) => value !== start[name]);
    history.replaceState(null, "", `#${new URLSearchParams(set)}`);
    if (Object.keys(changes).every((name) => name === "open")) { drawRows(); drawDetail(); return; }
    if (before.view !== asked.view && !columns().some((column) => column.id === asked.sort)) asked.sort = "";
    draw(false);
  }

  function readAddress() {
    Object.assign(asked, start);
    for (const [name, value] of new URLSearchParams(location.hash.slice(1))) if (Object.hasOwn(start, name)) asked[name] = value;
    if (!(Number(asked.w) in data.workloads)) asked.w = "0";
    $("query").value = asked.q;
    for (const [id, name] of [["workload", "w"], ["state", "state"], ["device", "device"], ["verdict", "verdict"]]) $(id).value = asked[name];
    for (const radio of document.getElementsByName("view")) radio.checked = radio.value === asked.view;
    draw(false);
  }

  function fill(id, entries) {
    $(id).replaceChildren(...entries.map(([value, text]) => { const made = element("option", text); made.value = value; return made; }));
  }

  fill("workload", data.workloads.map((text, place) => [String(place), text]));
  fill("state", [["", "any way"], ...Object.entries(endings).filter(([name]) => rows.some((row) => row[at.state] === name))]);
  fill("device", [["", "any device"], ...data.devices.map((name, place) => [String(place), name])]);
  fill("verdict", [["", "any"], ...Object.keys(verdictOrder).map((name) => [name, name])]);
  $("workload-label").hidden = data.workloads.length < 2;
  for (const id of ["device-label", "verdict-label", "views"]) $(id).hidden = !data.devices.length;
  $("title").textContent = data.title;
  document.title = data.title;
  $("summary").textContent = data.summary;

  $("controls").addEventListener("submit", (event) => event.preventDefault());
  $("query").addEventListener("input", (event) => ask({ q: event.target.value }));
  for (const [id, name] of [["workload", "w"], ["state", "state"], ["device", "device"], ["verdict", "verdict"]]) {
    $(id).addEventListener("change", (event) => ask({ [name]: event.target.value }));
  }
  for (const radio of document.getElementsByName("view")) radio.addEventListener("change", () => ask({ view: radio.value }));
  let waiting = false;
  $("scroller").addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; drawRows(); });
  });
  $("table").addEventListener("click", (event) => {
    const line = event.target.closest("tr[data-at]");
    if (line) ask({ open: shown[Number(line.dataset.at)][at.name] });
  });
  addEventListener("hashchange", readAddress);
  addEventListener("resize", drawRows);
  addEventListener("keydown", (event) => { if (event.key === "Escape" && asked.open) ask({ open: "" }); });
  readAddress();
})();
