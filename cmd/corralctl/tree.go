package main

import "github.com/corrald/corral/dbusapi/client"

// parentsOf returns the id of each session's parent, by the id of the session. All are the sessions
// in the order of their creation: one that was created later than the child is not the parent.
func parentsOf(all []client.Session) map[string]string {
	parents, created := map[string]string{}, map[string]bool{}
	for _, s := range all {
		if created[s.Parent] {
			parents[s.Id] = s.Parent
		}
		created[s.Id] = true
	}
	return parents
}

// arrangeAsTree returns the sessions with the children of each below it, in the order that they
// have, and what to print in front of their ids. A session whose parent is not among them has none.
func (c *ctl) arrangeAsTree(
	sessions []client.Session, parents map[string]string,
) (arranged []client.Session, branches map[string]string) {
	listed, children := map[string]bool{}, map[string][]client.Session{}
	for _, s := range sessions {
		listed[s.Id] = true
	}
	for _, s := range sessions {
		parent := parents[s.Id]
		if !listed[parent] {
			parent = ""
		}
		children[parent] = append(children[parent], s)
	}
	middle, last, line := "├─", "└─", "│ "
	if c.plain {
		middle, last, line = "  ", "  ", "  "
	}
	branches = map[string]string{}
	var add func(s client.Session, branch, indent string)
	add = func(s client.Session, branch, indent string) {
		arranged, branches[s.Id] = append(arranged, s), branch
		for i, child := range children[s.Id] {
			if i == len(children[s.Id])-1 {
				add(child, indent+last, indent+"  ")
			} else {
				add(child, indent+middle, indent+line)
			}
		}
	}
	for _, s := range children[""] {
		add(s, "", "")
	}
	return arranged, branches
}
