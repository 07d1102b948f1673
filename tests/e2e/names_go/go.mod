module names_go

go 1.18
