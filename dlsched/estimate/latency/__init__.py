"""How a service's latency answers to CPU: `law` says how, `update` learns it."""
