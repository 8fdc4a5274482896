"""From measurements to what is read: result files, pictures, TABLES.md, README, results pages."""
