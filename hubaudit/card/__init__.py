"""Model cards: the section on memory that is written between markers, and what the rest of a card claims."""
