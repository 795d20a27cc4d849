complete -o default -o bashdefault -C parley parley
