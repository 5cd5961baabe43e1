package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
)

// needsPackage is the message for a bash without the functions of the bash-completion package.
const needsPackage = "regroup: completion needs the package bash-completion: install it " +
	"(apt, dnf or brew install bash-completion) and open a new shell"

// bashHint is appended to cobra's script: it prints what to install, both when the script is
// sourced and at a TAB, instead of failing at a TAB.
const bashHint = `
__regroup_has_package()
{
    declare -F _get_comp_words_by_ref >/dev/null 2>&1 || declare -F _init_completion >/dev/null 2>&1
}

__regroup_init_completion()
{
    COMPREPLY=()
    if ! __regroup_has_package; then
        printf '\n%%s\n' %[1]q >&2
        return 1
    fi
    _get_comp_words_by_ref "$@" cur prev words cword
}

__regroup_has_package || printf '%%s\n' %[1]q >&2
`

func completionCommand(root *cobra.Command, out io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use: "completion", Short: "Print the script that completes command lines in a shell",
		Long:    "Prints a script for a shell. It completes commands and flags, and the ids of the jobs and nodes that exist.",
		Example: command.Examples("source <(regroup completion bash)", "regroup completion zsh > \"${fpath[1]}/_regroup\"", "regroup completion fish | source"),
	}
	add := func(shell, long string, write func(io.Writer) error, examples ...string) {
		cmd.AddCommand(&cobra.Command{
			Use: shell, Short: "Print the script for " + shell, Long: long, Example: command.Examples(examples...),
			Args: command.Exactly(), ValidArgsFunction: cobra.NoFileCompletions,
			RunE: func(*cobra.Command, []string) error { return write(out) },
		})
	}
	add("bash", "The script needs the package bash-completion (apt, dnf or brew install bash-completion), as those of most programs do. Where it is "+
		"missing the script says so when it is read, and at a TAB.\n\nThe first example is for this shell, the others are for all that come.",
		func(w io.Writer) error { return bashCompletion(root, w) },
		"source <(regroup completion bash)",
		"regroup completion bash > /etc/bash_completion.d/regroup",
		"regroup completion bash > ~/.local/share/bash-completion/completions/regroup")
	add("zsh", "Where completion is not on, switch it on with: echo \"autoload -U compinit; compinit\" >> ~/.zshrc", root.GenZshCompletion,
		"source <(regroup completion zsh)", "regroup completion zsh > \"${fpath[1]}/_regroup\"")
	add("fish", "The first example is for this shell, the second for all that come.", func(w io.Writer) error { return root.GenFishCompletion(w, true) },
		"regroup completion fish | source", "regroup completion fish > ~/.config/fish/completions/regroup.fish")
	add("powershell", "For all shells that come, put the output of the example's first half into the profile.", root.GenPowerShellCompletionWithDesc,
		"regroup completion powershell | Out-String | Invoke-Expression")
	return cmd
}

func bashCompletion(root *cobra.Command, w io.Writer) error {
	var b strings.Builder
	if err := root.GenBashCompletionV2(&b, true); err != nil {
		return err
	}
	fmt.Fprintf(&b, bashHint, needsPackage)
	_, err := io.WriteString(w, b.String())
	return err
}
