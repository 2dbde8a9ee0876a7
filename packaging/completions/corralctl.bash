# bash completion for corralctl: which words there are, corralctl itself knows.

_corralctl() {
    local words=() word rest line=$COMP_LINE i
    # Readline has cut the line at = : and @, too. What stands together is put together again.
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        rest=${line#"${line%%[![:blank:]]*}"}
        if [[ $i -gt 0 && $rest == "$line" && ($word == [=:@]* || ${words[-1]} == *[=:@]) ]]; then
            words[-1]+=$word
        else
            words+=("$word")
        fi
        line=${rest#"$word"}
    done
    local current=${words[-1]} replies=() reply
    local kept=${current%"${current##*[=:@]}"} # readline replaces only what follows
    mapfile -t replies < <("${1/#\~/$HOME}" __complete -- "${words[@]:1}" 2>/dev/null)
    COMPREPLY=()
    for reply in "${replies[@]}"; do
        case $reply in
            :directory) compopt -o filenames; mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "${current#"$kept"}") ;;
            :file) compopt -o filenames; mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "${current#"$kept"}") ;;
            :command) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -c -- "${current#"$kept"}") ;;
            *)
                reply=${reply%%$'\t'*}
                COMPREPLY+=("${reply#"$kept"}")
                ;;
        esac
    done
    [[ ${#COMPREPLY[@]} -gt 0 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
    return 0
}

complete -F _corralctl corralctl
