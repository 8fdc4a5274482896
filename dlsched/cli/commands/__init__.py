"""What `dlsched COMMAND` does: a module has some commands, or what several of them share."""
