"""What analyses journals: `gathering` reports on a range of one, `advice` finds the limits that its
containers needed, `replay` asks a policy about its cycles."""
