"""From measurements to what is read: result files, pictures, README, results pages."""
