"""Reports on a class: spreadsheets, pages, and the formats of other systems."""
