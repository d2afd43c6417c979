package bmcsim

// addSensors adds readings that follow the power: the old way (Thermal and Power) or the new one (Sensors).
func (s *Service) addSensors() {
	if s.p.sensors {
		s.addSensorCollection()
		return
	}
	s.add(s.chas+"/Thermal", &resource{doc: func(state State) doc {
		return doc{
			"@odata.id": s.id(s.chas + "/Thermal"), "@odata.type": "#Thermal.v1_6_0.Thermal", "Id": "Thermal", "Name": "Thermal",
			"Temperatures": []doc{
				{"Name": "Inlet Temp", "ReadingCelsius": 22, "Status": doc{"State": "Enabled", "Health": "OK"}},
				{"Name": "CPU1 Temp", "ReadingCelsius": whenOn(state, 48), "Status": doc{"State": "Enabled", "Health": "OK"}},
			},
			"Fans": []doc{{
				"Name": "Fan 1", "Reading": whenOn(state, 5400), "ReadingUnits": "RPM", "Status": doc{"State": "Enabled", "Health": "OK"},
			}},
		}
	}})
	s.add(s.chas+"/Power", &resource{doc: func(state State) doc {
		return doc{
			"@odata.id": s.id(s.chas + "/Power"), "@odata.type": "#Power.v1_5_0.Power", "Id": "Power", "Name": "Power",
			"PowerControl": []doc{{"Name": "System Power", "PowerConsumedWatts": watts(state)}},
			"Voltages":     []doc{{"Name": "12V", "ReadingVolts": 12.1, "Status": doc{"State": "Enabled", "Health": "OK"}}},
		}
	}})
}

func (s *Service) addSensorCollection() {
	at := s.chas + "/Sensors"
	var paths []string
	for _, sensor := range []struct {
		id, kind, unit string
		value          func(State) any
	}{
		{"InletTemp", "Temperature", "Cel", func(State) any { return 22 }},
		{"CPU1Temp", "Temperature", "Cel", func(st State) any { return whenOn(st, 48) }},
		{"Fan1", "Rotational", "RPM", func(st State) any { return whenOn(st, 5400) }},
		{"PSU1Power", "Power", "W", func(st State) any { return watts(st) }},
	} {
		path := at + "/" + sensor.id
		paths = append(paths, path)
		s.add(path, &resource{doc: func(state State) doc {
			return doc{
				"@odata.id": s.id(path), "@odata.type": "#Sensor.v1_5_0.Sensor", "Id": sensor.id, "Name": sensor.id,
				"Reading": sensor.value(state), "ReadingType": sensor.kind, "ReadingUnits": sensor.unit,
				"Status": doc{"State": "Enabled", "Health": "OK"},
			}
		}})
	}
	s.collection(at, "Sensor", paths...)
}

// whenOn is a reading that there is while the machine is on only.
func whenOn(state State, value float64) any {
	if !state.On {
		return nil
	}
	return value
}

func watts(state State) int {
	if !state.On {
		return 14
	}
	return 310
}
