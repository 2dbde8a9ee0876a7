package session

// Ports is a block of TCP ports that is reserved for a session. The zero value is none.
type Ports struct {
	First    uint16 `json:"first"`
	Count    uint16 `json:"count"`
	Variable string `json:"variable,omitempty"` // a variable with the first port beside CORRAL_PORT, "" for none
}

// All returns the ports of the block.
func (p Ports) All() []uint16 {
	all := make([]uint16, 0, p.Count)
	for i := range p.Count {
		all = append(all, p.First+i)
	}
	return all
}

// Overlaps reports whether a port is in both blocks.
func (p Ports) Overlaps(o Ports) bool {
	return int(p.First) < int(o.First)+int(o.Count) && int(o.First) < int(p.First)+int(p.Count)
}
