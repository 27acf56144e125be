module watm/goclient

go 1.26
