"""Model of a service's latency over its CPU: `law` is the model, `update` learns it."""
