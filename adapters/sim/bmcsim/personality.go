package bmcsim

import (
	"slices"

	"github.com/better-compute/metal/domain/fault"
)

// Name names a personality.
type Name string

// The personalities: Standard keeps to the standard and demands that its clients do; the others are shaped like what is out
// there.
const (
	Standard   Name = "standard"
	Dell       Name = "dell"
	HPE        Name = "hpe"
	Supermicro Name = "supermicro"
	AMI        Name = "ami"
)

// etags is how a controller tells and takes entity tags.
type etags int

const (
	etagNone   etags = iota
	etagStrong       // header and body, "…"
	etagWeak         // header and body, W/"…"
	etagBare         // in the body only, without quotes
)

// slot is a virtual drive.
type slot struct {
	id    string
	types []string
}

// personality is how one kind of controller behaves, as data.
type personality struct {
	name                    Name
	vendor, oem, product    string // of the service root; vendor may be empty
	manufacturer, model     string
	manager, firmware, bios string // model and firmware of the controller
	registry                string // of the vendor's own messages
	systemID, managerID     string
	chassisID               string
	slash                   bool // ids end with a slash
	loose                   bool // paths are found whatever their case
	upperMAC                bool
	tag                     etags
	ifMatch                 bool // a PATCH without If-Match is refused
	health                  string
	resets                  []ResetType
	actionInfo              bool // allowed values are behind @Redfish.ActionInfo
	alreadyCode             int  // status when power is as asked for already; 0: as if it had been done
	alreadyOn, alreadyOff   string
	resetTask               bool // a reset answers 202 with a task
	undated                 bool // nobody is told when the machine was started
	targets, modes          []string
	settings                string // id of the settings object, the only place that takes Boot
	fullBoot                bool   // what a PATCH of Boot leaves out is reset
	postBusy                bool   // Boot can't be changed during POST
	mediaAtSystem           bool
	slots                   []slot
	mediaStrict             bool // InsertMedia takes nothing but the image
	noEject                 bool // EjectMedia appears only where something is inserted
	ethernet, adapters      bool // where NICs are listed
	hostNIC                 string
	driveFacts              driveFacts
	links                   linkFacts
	bootModes               *bootModes // what the firmware's settings call them; nil: they do not tell
	noModules               bool       // TrustedModules is not there
	sensors                 bool       // Sensors collection instead of Thermal and Power
	baseboard               bool       // a second system without Boot and Reset
	jobs                    bool
	maxSessions, lockout    int
	sessionFull             bool // the session's Location is an absolute URL
}

// driveFacts is how much a controller knows about drives.
type driveFacts int

const (
	drivesFull driveFacts = iota
	drivesNoKind
	drivesNull
)

// linkFacts is where a controller tells that a network port is connected.
type linkFacts int

const (
	linksOfInterfaces linkFacts = iota
	linksOfPorts
	linksUnknown
	linksDown // all of them, whatever is plugged in
)

// bootModes are the words of one maker's firmware for how it boots.
type bootModes struct{ setting, uefi, legacy string }

var allResets = []ResetType{On, ForceOff, GracefulShutdown, GracefulRestart, ForceRestart, PowerCycle, PushPowerButton, Nmi}

var personalities = []personality{
	{
		name: Standard, vendor: "Contoso", product: "Reference BMC", manufacturer: "Contoso", model: "3500", manager: "RefBMC",
		firmware: "1.45.455b66-rev4", bios: "P79 v1.45", registry: "Base.1.13", systemID: "437XR1138R2", managerID: "BMC",
		chassisID: "1U", tag: etagStrong, ifMatch: true, health: "OK", resets: allResets,
		targets: []string{"None", "Pxe", "Cd", "Usb", "Hdd", "BiosSetup", "UefiHttp"}, modes: []string{"Legacy", "UEFI"},
		mediaAtSystem: true, slots: []slot{{"CD1", []string{"CD", "DVD"}}, {"Floppy1", []string{"Floppy", "USBStick"}}},
		ethernet: true, maxSessions: 16, lockout: 5, sensors: true, upperMAC: true,
		bootModes: &bootModes{"BootMode", "UEFI", "Legacy"},
	},
	{
		name: Dell, vendor: "Dell", oem: "Dell", product: "Integrated Dell Remote Access Controller", manufacturer: "Dell Inc.",
		model: "PowerEdge R650", manager: "15G Monolithic", firmware: "6.10.30.00", bios: "1.9.2", registry: "IDRAC.2.7",
		systemID: "System.Embedded.1", managerID: "iDRAC.Embedded.1", chassisID: "System.Embedded.1", loose: true, upperMAC: true,
		tag: etagBare, health: "OK", resets: allResets, alreadyCode: 409, alreadyOn: "PSU501", alreadyOff: "PSU502",
		targets: []string{"None", "Pxe", "Floppy", "Cd", "Hdd", "BiosSetup", "Utilities", "UefiTarget", "SDCard", "UefiHttp"},
		modes:   []string{"Legacy", "UEFI"}, slots: []slot{{"CD", []string{"CD", "DVD"}}, {"RemovableDisk", []string{"USBStick"}}},
		ethernet: true, adapters: true, jobs: true, maxSessions: 8, lockout: 3, links: linksOfPorts,
		bootModes: &bootModes{"BootMode", "Uefi", "Bios"},
	},
	{
		name: HPE, undated: true, vendor: "HPE", oem: "Hpe", product: "ProLiant DL360 Gen10", manufacturer: "HPE", model: "ProLiant DL360 Gen10",
		manager: "iLO 5", firmware: "iLO 5 v2.72", bios: "U32 v2.68", registry: "iLO.2.14", systemID: "1", managerID: "1",
		chassisID: "1", slash: true, loose: true, tag: etagWeak, health: "Critical",
		resets:      []ResetType{On, ForceOff, GracefulShutdown, ForceRestart, Nmi, PushPowerButton, GracefulRestart},
		alreadyCode: 400, alreadyOn: "InvalidOperationForSystemState", alreadyOff: "InvalidOperationForSystemState",
		targets: []string{"None", "Cd", "Hdd", "Usb", "Utilities", "Diags", "BiosSetup", "Pxe", "UefiShell", "UefiHttp", "UefiTarget"},
		modes:   []string{"Legacy", "UEFI"}, postBusy: true,
		slots:    []slot{{"2", []string{"CD", "DVD"}}, {"1", []string{"Floppy", "USBStick"}}},
		ethernet: true, maxSessions: 12, lockout: 5, sessionFull: true, links: linksUnknown,
		bootModes: &bootModes{"BootMode", "Uefi", "LegacyBios"},
	},
	{
		name: Supermicro, undated: true, oem: "Supermicro", manufacturer: "Supermicro", model: "SYS-120U-TNR", manager: "ASPEED",
		firmware: "01.02.31", bios: "1.4b", registry: "SMC.1.0", systemID: "1", managerID: "1", chassisID: "1", loose: true,
		tag: etagStrong, health: "OK",
		resets:     []ResetType{On, ForceOff, GracefulShutdown, GracefulRestart, ForceRestart, Nmi, ForceOn, PowerCycle},
		actionInfo: true, targets: []string{"None", "Pxe", "Floppy", "Usb", "Hdd", "BiosSetup", "UsbCd", "UefiBootNext", "UefiHttp"},
		modes: []string{"Legacy", "UEFI"}, fullBoot: true,
		slots:       []slot{{"VirtualMedia1", []string{"CD", "DVD", "Floppy", "USBStick"}}, {"VirtualMedia2", []string{"CD", "DVD"}}},
		mediaStrict: true, noEject: true, ethernet: true, hostNIC: "ToManager", driveFacts: drivesNoKind, maxSessions: 16, lockout: 3,
		links: linksDown, bootModes: &bootModes{"BootModeSelect_00A1", "UEFI", "LEGACY"}, noModules: true,
	},
	{
		name: AMI, oem: "Ami", vendor: "AMI", product: "AMI Redfish Server", manufacturer: "NVIDIA", model: "DGX",
		manager: "AST2600", firmware: "24.01.05", bios: "1.4.10", registry: "Ami.1.0", systemID: "DGX", managerID: "BMC",
		chassisID: "DGX", loose: true, upperMAC: true, tag: etagStrong, ifMatch: true, health: "OK",
		resets: []ResetType{ForceOff, ForceRestart, GracefulShutdown, On}, actionInfo: true, resetTask: true,
		targets: []string{"None", "Pxe", "Floppy", "Cd", "Usb", "Hdd", "BiosSetup", "UefiShell", "UefiTarget", "UefiHttp",
			"UefiBootNext"},
		modes: []string{"UEFI"}, settings: "SD", slots: []slot{{"CD1", []string{"CD", "DVD"}}, {"HD1", []string{"USBStick"}}},
		adapters: true, driveFacts: drivesNull, sensors: true, baseboard: true, maxSessions: 16, lockout: 5,
		links: linksDown,
	},
}

// Names lists the personalities.
func Names() []Name {
	names := make([]Name, len(personalities))
	for i, p := range personalities {
		names[i] = p.name
	}
	return names
}

// Known tells whether a personality is one of Names; the error names them.
func Known(name Name) error {
	_, err := find(name)
	return err
}

// Maker tells who makes the machines of a personality, and what they are called.
func Maker(name Name) (manufacturer, model string) {
	p, err := find(name)
	if err != nil {
		return "", ""
	}
	return p.manufacturer, p.model
}

func find(name Name) (*personality, error) {
	i := slices.IndexFunc(personalities, func(p personality) bool { return p.name == name })
	if i < 0 {
		return nil, fault.New(fault.InvalidConfig, "there is no personality %q", name).
			WithRemedy("use one of standard, dell, hpe, supermicro, ami")
	}
	return &personalities[i], nil
}
