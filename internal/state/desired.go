package state

import (
	"encoding/json"
	"reflect"
	"slices"
)

// Need names a fact that is learned only while a machine joins. The renderer has the names.
type Need string

// Only is the condition for an item to be part of the node; "" is always. Bind drops others.
type Only string

// Item is a wanted resource, its step, and the units that must restart when it changes.
type Item struct {
	Step     Step
	Resource Resource
	Owes     []string
	Needs    Need // must be met before this item and all later ones can be applied
	Only     Only
	Spared   bool // neither change nor undo the resource, as if Only is unknown; not in JSON
}

// itemJSON is the JSON form of an Item. It omits a file's content.
type itemJSON struct {
	Step     Step     `json:"step"`
	Resource Record   `json:"resource"`
	Owes     []string `json:"owes,omitempty"`
	Needs    Need     `json:"needs,omitempty"`
	Only     Only     `json:"only,omitempty"`
}

func (i Item) MarshalJSON() ([]byte, error) {
	return json.Marshal(itemJSON{i.Step, Record{Resource: i.Resource}, i.Owes, i.Needs, i.Only})
}

func (i *Item) UnmarshalJSON(data []byte) error {
	var form itemJSON
	err := json.Unmarshal(data, &form)
	*i = Item{form.Step, form.Resource.Resource, form.Owes, form.Needs, form.Only, false}
	return err
}

// Desired is a node as a value: the wanted state of the machine, in the order of its application.
type Desired []Item

// Keys returns the keys of all items in order.
func (d Desired) Keys() []Key { return keys(d, func(item Item) Key { return item.Resource.Key() }) }

// Amend returns the list with what differs between two others, in the order of after; the rest of
// it stays.
func (d Desired) Amend(before, after Desired) Desired {
	var list Desired
	for _, item := range after {
		was, is := before.find(item), d.find(item)
		if was < 0 || !reflect.DeepEqual(before[was], item) {
			list = append(list, item)
		} else if is >= 0 {
			list = append(list, d[is])
		}
	}
	for i, item := range d {
		if before.find(item) < 0 && after.find(item) < 0 { // it stays behind its neighbour
			list = slices.Insert(list, list.find(d[max(i-1, 0)])+1, item)
		}
	}
	return list
}

// find returns the index of an item. Those with the same key have other conditions.
func (d Desired) find(item Item) int {
	return slices.IndexFunc(d, func(is Item) bool {
		return is.Only == item.Only && is.Resource.Key() == item.Resource.Key()
	})
}

// Cut splits the list before the first item with an unmet need, and returns that need; "" if none.
// Needs never reorder the list; those of spared items are ignored.
func (d Desired) Cut(met func(Need) bool) (now, later Desired, unmet Need) {
	for i, item := range d {
		if item.Needs != "" && !item.Spared && !met(item.Needs) {
			return d[:i:i], d[i:], item.Needs
		}
	}
	return d, nil, ""
}

// Step is one of the eleven parts of becoming a node, in their order, for display.
type Step string

// The steps, in order.
const (
	Arc         Step = "arc"
	Services    Step = "services"
	Directories Step = "directories"
	System      Step = "system"
	Runc        Step = "runc"
	Containerd  Step = "containerd"
	Kubernetes  Step = "kubernetes"
	CNI         Step = "cni"
	Credentials Step = "credentials"
	Kubelet     Step = "kubelet"
	Start       Step = "start"
)

// Steps returns all steps in order.
func Steps() []Step {
	return []Step{
		Arc, Services, Directories, System, Runc, Containerd,
		Kubernetes, CNI, Credentials, Kubelet, Start,
	}
}
