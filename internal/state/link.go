package state

// Link is a symbolic link.
type Link struct {
	Path   string `json:"path"`
	Target string `json:"target"`
	Dir    *Dir   `json:"dir,omitempty"` // an observed link leads to it; nil if none; not compared
}

func (r Link) Key() Key { return PathKey(r.Path) }

func (r Link) equal(other Resource) bool {
	o, ok := other.(Link)
	return ok && r.Target == o.Target
}

func (r Link) describe(c Change) string {
	if !c.Undo {
		return "link " + r.Path
	}
	return either(c.From != nil && Equal(c.From, r), "empty directory ", "restore link ") + r.Path
}

func (r Link) show() string { return "a link to " + r.Target }
