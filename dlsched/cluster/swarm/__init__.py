"""Docker Swarm as the cluster's store and identity; its services are not used."""
