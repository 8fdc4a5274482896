"""The pure part of the cluster: what is known, what is decided, what decisions are held to."""
