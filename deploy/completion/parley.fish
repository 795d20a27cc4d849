function __complete_parley
    set -lx COMP_LINE (commandline -cp)
    test -z (commandline -ct)
    and set COMP_LINE "$COMP_LINE "
    parley
end
complete -f -c parley -a "(__complete_parley)"
