package drills

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
)

// A process reads the wall clock from the vDSO, code that the kernel maps into it. The
// drills of wrong clocks write their own code over it in one process at a time: it asks
// the kernel, and adds seconds to the wall clock alone. All else of the machine, and the
// monotonic clock of that process, stay right.

// wrong is the code of one function of the vDSO (x86-64, System V: rdi, rsi are its
// arguments). The eight bytes at seconds are what is added.
type wrong struct {
	name    string
	code    []byte
	seconds int
}

var wrongClock = []wrong{
	{"__vdso_clock_gettime", []byte{
		0xb8, 0xe4, 0, 0, 0, // mov eax, SYS_clock_gettime
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi: CLOCK_REALTIME is 0
		0x75, 0x0f, // jnz end
		0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, // mov rax, seconds
		0x48, 0x01, 0x06, // add [rsi], rax
		0x31, 0xc0, // xor eax, eax
		0xc3, // end: ret
	}, 13},
	{"__vdso_gettimeofday", []byte{
		0xb8, 0x60, 0, 0, 0, // mov eax, SYS_gettimeofday
		0x0f, 0x05, // syscall
		0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, // mov rax, seconds
		0x48, 0x01, 0x07, // add [rdi], rax
		0x31, 0xc0, // xor eax, eax
		0xc3, // ret
	}, 9},
}

// setClock makes the wall clock of a child process wrong by whole seconds. The process is
// stopped meanwhile.
func setClock(pid int, by time.Duration) error {
	if err := stopProcess(pid); err != nil {
		return err
	}
	defer syscall.Kill(pid, syscall.SIGCONT)
	base, err := vdso(pid)
	if err != nil {
		return err
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	image, err := elf.NewFile(io.NewSectionReader(mem, base, 1<<16))
	if err != nil {
		return err
	}
	symbols, err := image.DynamicSymbols()
	if err != nil {
		return err
	}
	for _, w := range wrongClock {
		code := bytes.Clone(w.code)
		binary.LittleEndian.PutUint64(code[w.seconds:], uint64(int64(by/time.Second)))
		done := false
		for _, s := range symbols {
			if s.Name == w.name && s.Size >= uint64(len(code)) {
				if _, err := mem.WriteAt(code, base+int64(s.Value)); err != nil {
					return err
				}
				done = true
			}
		}
		if !done {
			return fmt.Errorf("process %d has no %s of %d bytes or more", pid, w.name, len(code))
		}
	}
	return nil
}

// stopProcess sends SIGSTOP and returns when the process has stopped.
func stopProcess(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	for range 5000 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return err
		}
		_, state, _ := strings.Cut(string(stat), ") ")
		if strings.HasPrefix(state, "T") {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("process %d does not stop", pid)
}

// vdso returns where the vDSO of a process begins.
func vdso(pid int) (int64, error) {
	const sysinfoHeader = 33 // AT_SYSINFO_EHDR of getauxval(3)
	auxv, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	if err != nil {
		return 0, err
	}
	for ; len(auxv) >= 16; auxv = auxv[16:] {
		if binary.LittleEndian.Uint64(auxv) == sysinfoHeader {
			return int64(binary.LittleEndian.Uint64(auxv[8:])), nil
		}
	}
	return 0, fmt.Errorf("process %d has no vDSO", pid)
}
