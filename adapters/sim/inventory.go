package sim

import "github.com/better-compute/metal/adapters/sim/bmcsim"

// Listed is one machine as a list tells it, with all that it takes to enroll it.
type Listed struct {
	Name        string      `json:"name"`
	Personality bmcsim.Name `json:"personality"`
	BMC         ListedBMC   `json:"bmc"`
	MACs        []string    `json:"macs"`
	Serial      string      `json:"serial"`
	UUID        string      `json:"uuid"`
	View        View        `json:"view"`
}

// ListedBMC is a controller, with its credentials: they are of the simulation only.
type ListedBMC struct {
	Address     string `json:"address"`
	Username    string `json:"username"`
	Password    string `json:"password"`
	Fingerprint string `json:"fingerprint"`
}

// List tells every machine.
func (s *Site) List() []Listed {
	list := make([]Listed, 0, len(s.machines))
	for _, m := range s.machines {
		list = append(list, m.listed())
	}
	return list
}

func (m *Machine) listed() Listed {
	return Listed{
		Name: m.spec.Name, Personality: m.spec.Personality, MACs: m.MACs(), Serial: m.spec.Serial, UUID: m.spec.UUID, View: m.View(),
		BMC: ListedBMC{Address: m.address, Username: m.spec.Username, Password: m.spec.Password, Fingerprint: m.fingerprint},
	}
}
