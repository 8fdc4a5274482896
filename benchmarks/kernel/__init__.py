"""What the kernel's means are worth: CFS burst, the group's weight, the idle class."""
