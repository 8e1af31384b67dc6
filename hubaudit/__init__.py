"""What a Hugging Face model is, and what memory it needs."""
