package redistest

import (
	"errors"
	"strings"

	"weir.dev/weir/internal/testserver"
)

// freePorts returns a loopback port for a server of version v and one for its cluster bus, both free a moment ago and
// never handed out before in this process.
func freePorts(v Version) (port, busPort int, err error) {
	for range 100 {
		if port, err = testserver.Port(0); err != nil {
			return 0, 0, err
		}
		wanted := 0
		if v == Redis62 { // has no cluster-port: its bus is where it always was
			wanted = port + 10000
		}
		if busPort, err = testserver.Port(wanted); err == nil {
			return port, busPort, nil
		}
	}
	return 0, 0, errors.New("no free pair of loopback ports in 100 tries")
}

func portTaken(err error) bool {
	return strings.Contains(err.Error(), "Address already in use")
}
