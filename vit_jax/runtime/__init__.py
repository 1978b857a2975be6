"""The process and its machine: errors, files, devices, hosts, caches."""
