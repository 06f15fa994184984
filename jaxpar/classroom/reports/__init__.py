"""What is written of a class: spreadsheets, pages, and the formats of other systems."""
