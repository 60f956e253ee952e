# SPDX-License-Identifier: MIT
# Completes vpmm in bash: commands, topics and options as the command itself tells of them, then files.

_vpmm_offer()
{
    mapfile -t COMPREPLY < <(compgen -W "$1" -- "${COMP_WORDS[COMP_CWORD]}")
}

# The names that begin a line of the overview.
_vpmm_names()
{
    "${COMP_WORDS[0]}" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p'
}

_vpmm_options()
{
    "${COMP_WORDS[0]}" help "$1" 2>/dev/null | grep -o -e '--[a-z][a-z-]*' | sort -u
}

# Of `vpmm run`: the number of the program's word. An equals sign is a word of its own.
_vpmm_program()
{
    local at=2
    while [ "$at" -lt "$COMP_CWORD" ]; do
        case ${COMP_WORDS[at]} in
            --) echo $((at + 1)) && return ;;
            =) at=$((at + 2)) ;;
            --page-size | --pages | --limit | --trace | --only | --set | --library)
                [ "${COMP_WORDS[at + 1]}" = = ] && at=$((at + 1)) || at=$((at + 2)) ;;
            -*) at=$((at + 1)) ;;
            *) break ;;
        esac
    done
    if [ "$at" -eq "$COMP_CWORD" ] && [[ ${COMP_WORDS[at]} == [-=]* ]]; then
        at=$((at + 1))
    fi
    echo "$at"
}

# The program completes its own arguments.
_vpmm_complete_program()
{
    if declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    elif [ "$1" -eq "$COMP_CWORD" ]; then
        mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}")
    fi
}

_vpmm()
{
    local current=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} program=
    COMPREPLY=()
    [ "$command" != run ] || program=$(_vpmm_program)
    if [ "$COMP_CWORD" -eq 1 ]; then
        _vpmm_offer "$(_vpmm_names) --help --version"
    elif [ "$command" = help ]; then
        _vpmm_offer "$(_vpmm_names)"
    elif [ -n "$program" ] && [ "$COMP_CWORD" -ge "$program" ]; then
        _vpmm_complete_program "$program"
    elif [[ $current == -* ]]; then
        _vpmm_offer "$(_vpmm_options "$command")"
    fi
}

complete -o default -F _vpmm vpmm
