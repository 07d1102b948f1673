module workloads

go 1.19
