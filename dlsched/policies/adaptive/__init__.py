"""The policy `adaptive`: latency targets first, training on what they leave."""
