package bmcsim

import (
	"fmt"
	"slices"
)

func (s *Service) addManager() {
	d := doc{
		"@odata.type": "#Manager.v1_9_0.Manager", "Id": s.p.managerID, "Name": "Manager", "ManagerType": "BMC", "Model": s.p.manager,
		"FirmwareVersion": s.p.firmware, "Status": doc{"State": "Enabled", "Health": "OK"},
		"Links": doc{"ManagerForServers": s.links(s.base), "ManagerForChassis": s.links(s.chas)},
	}
	if !s.p.mediaAtSystem {
		d["VirtualMedia"] = s.link(s.mediaPath())
	}
	if s.p.jobs {
		d["Jobs"] = s.link(s.jobsPath())
		s.add(s.jobsPath(), &resource{volatile: true, doc: s.jobList})
	}
	s.fixed(s.mgr, d)
}

// job is an entry of the job queue of controllers that apply changes at the next start.
type job struct {
	id, name string
	boots    int // of the machine when it was made: done once it has started again
}

// maxJobs is how many jobs a controller remembers.
const maxJobs = 20

func (s *Service) jobsPath() string { return s.mgr + "/Jobs" }

func (s *Service) addJob(name string, boots int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	number := 1
	if n := len(s.jobs); n > 0 {
		_, _ = fmt.Sscanf(s.jobs[n-1].id, "JID_%d", &number)
		number++
	}
	s.jobs = append(s.jobs, job{id: fmt.Sprintf("JID_%012d", number), name: name, boots: boots})
	if len(s.jobs) > maxJobs {
		s.jobs = slices.Delete(s.jobs, 0, 1)
	}
}

func (s *Service) jobDoc(j job, state State) doc {
	d := doc{
		"@odata.id": s.id(s.jobsPath() + "/" + j.id), "@odata.type": "#DellJob.v1_1_0.DellJob", "Id": j.id, "Name": j.name,
		"JobType": "BIOSConfiguration", "JobState": "Scheduled", "PercentComplete": 0,
	}
	if state.Boots > j.boots {
		d["JobState"], d["PercentComplete"] = "Completed", 100
	}
	return d
}

// jobList is the queue. The caller holds the lock.
func (s *Service) jobList(state State) doc {
	members := make([]doc, 0, len(s.jobs))
	for _, j := range s.jobs {
		members = append(members, s.jobDoc(j, state))
	}
	return doc{
		"@odata.id": s.id(s.jobsPath()), "@odata.type": "#DellJobCollection.DellJobCollection", "Name": "JobQueue",
		"Members": members, "Members@odata.count": len(members),
	}
}
