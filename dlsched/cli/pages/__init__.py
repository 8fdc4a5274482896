"""What commands show to people: a module is one command's page, or a part of several."""
