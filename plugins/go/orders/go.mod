module orders

go 1.24

require wasmill v0.0.0

replace wasmill => ./wasmill
