"""What dlsched itself costs: a cycle, its updates, how soon it reacts, and the simulator."""
