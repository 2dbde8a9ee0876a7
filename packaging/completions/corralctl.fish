# fish completion for corralctl: which words there are, corralctl itself knows.

function __corralctl_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    for line in (command $words[1] __complete -- $words[2..] "$current" 2>/dev/null)
        switch $line
            case :directory
                set -l option (string match -r '^--[a-z-]+=' -- "$current")
                for directory in (__fish_complete_directories (string replace -r '^--[a-z-]+=' '' -- "$current"))
                    echo "$option$directory"
                end
            case :file
                __fish_complete_path "$current"
            case :command
                __fish_complete_command
            case '*'
                echo $line
        end
    end
end

complete -c corralctl -f -a '(__corralctl_complete)'
