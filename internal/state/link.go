package state

// Link is a symbolic link.
type Link struct {
	Path   string `json:"path"`
	Target string `json:"target"`
	// Dir is, of an observed link, the directory that it leads to; nil when it leads to none. It is
	// not compared.
	Dir *Dir `json:"dir,omitempty"`
}

// Key implements Resource.
func (r Link) Key() Key { return PathKey(r.Path) }

func (r Link) kind() string { return "link" }

func (r Link) equal(other Resource) bool {
	o, ok := other.(Link)
	return ok && r.Target == o.Target
}

func (r Link) claims() bool { return false }

func (r Link) absence() Resource { return Absent{Path: r.Path} }

// undoForeign: a link that leads to a directory is the owner's way to put data on another disk.
func (r Link) undoForeign(Resource) treatment {
	if r.Dir != nil {
		return leaveAsIs
	}
	return undoAndKeep
}

func (r Link) describe(Change) string { return "link " + r.Path }

func (r Link) describeUndo(c Change) string {
	if c.From != nil && Equal(c.From, r) {
		return "empty directory " + r.Path
	}
	return "restore link " + r.Path
}

func (r Link) show() string { return "a link to " + r.Target }
