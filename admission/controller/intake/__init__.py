"""What is watched in the cluster: workloads, LocalQueues, and Jobs without a queue."""
