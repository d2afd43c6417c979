package bmcsim

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
)

const tasksPath = root + "/TaskService/Tasks"

// reset is ComputerSystem.Reset.
func (s *Service) reset(c call) answer {
	var body struct{ ResetType ResetType }
	if err := json.Unmarshal(c.body, &body); err != nil || body.ResetType == "" {
		return refuse(http.StatusBadRequest, "ActionParameterMissing", "ResetType is missing.", "ComputerSystem.Reset", "ResetType")
	}
	if !slices.Contains(s.p.resets, body.ResetType) {
		return refuse(http.StatusBadRequest, "ActionParameterNotSupported", "The reset type is not supported.",
			string(body.ResetType), "ResetType")
	}
	if a := s.already(body.ResetType); a.status != 0 {
		return a
	}
	if err := s.board.Reset(body.ResetType); err != nil {
		return refuse(http.StatusConflict, "ActionParameterValueConflict", err.Error(), "ResetType", string(body.ResetType))
	}
	if s.p.resetTask {
		return s.addTask()
	}
	return empty()
}

// already refuses what is so already, where the controller does.
func (s *Service) already(t ResetType) answer {
	if s.p.alreadyCode == 0 {
		return answer{}
	}
	switch on := s.board.State().On; {
	case on && (t == On || t == ForceOn):
		return s.refuseOwn(s.p.alreadyCode, s.p.alreadyOn, "Server is already powered ON.")
	case !on && t != On && t != ForceOn && t != PushPowerButton && t != PowerCycle:
		return s.refuseOwn(s.p.alreadyCode, s.p.alreadyOff, "Server is already powered OFF.")
	}
	return answer{}
}

// taskStates are what a task says at each look, the last one for ever.
var taskStates = []string{"New", "Running", "Completed"}

// maxTasks is how many tasks a controller remembers.
const maxTasks = 8

// task is one reset that was answered with 202.
type task struct {
	number, looks int
}

func (t *task) path() string { return tasksPath + "/" + strconv.Itoa(t.number) }

// poll is one look at the task. The caller holds the service's lock.
func (t *task) poll(s *Service) doc {
	state := taskStates[min(t.looks, len(taskStates)-1)]
	t.looks++
	d := doc{
		"@odata.id": s.id(t.path()), "@odata.type": "#Task.v1_5_1.Task", "Id": strconv.Itoa(t.number), "Name": "Computer System Reset",
		"TaskState": state, "TaskStatus": "OK", "TaskMonitor": t.path() + "/Monitor", "Messages": []doc{},
	}
	if state == "Completed" {
		d["PercentComplete"] = 100
	}
	return d
}

func (s *Service) addTask() answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	number := 1
	if len(s.tasks) > 0 {
		number = s.tasks[len(s.tasks)-1].number + 1
	}
	t := &task{number: number}
	s.tasks = append(s.tasks, t)
	if len(s.tasks) > maxTasks {
		s.tasks = slices.Delete(s.tasks, 0, 1)
	}
	return reply(http.StatusAccepted, doc{
		"@odata.id": s.id(t.path()), "@odata.type": "#Task.v1_5_1.Task", "Id": strconv.Itoa(number), "Name": "Computer System Reset",
		"TaskState": "New", "TaskStatus": "OK",
	}).with("Location", t.path()+"/Monitor")
}

func (s *Service) addTasks() {
	s.fixed(root+"/TaskService", doc{
		"@odata.type": "#TaskService.v1_2_0.TaskService", "Id": "TaskService", "Name": "Task Service", "Tasks": s.link(tasksPath),
	})
	s.add(tasksPath, &resource{volatile: true, doc: func(State) doc {
		var paths []string
		for _, t := range s.tasks {
			paths = append(paths, t.path())
		}
		return doc{
			"@odata.id": s.id(tasksPath), "@odata.type": "#TaskCollection.TaskCollection", "Name": "Tasks",
			"Members": s.links(paths...), "Members@odata.count": len(paths),
		}
	}})
}
