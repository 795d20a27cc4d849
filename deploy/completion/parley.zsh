#compdef parley
autoload -U +X bashcompinit && bashcompinit
complete -o default -o bashdefault -C parley parley
