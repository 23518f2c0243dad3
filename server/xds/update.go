package xds

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	pb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"weir.dev/weir/server/rules"
)

// typeURL names the resources that a Client asks for.
const typeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

const (
	// maxLevels is how many levels of descriptors are written. rules refuses fewer.
	maxLevels = 128
	// maxUnreadable is how many resources that cannot be read an error names.
	maxUnreadable = 10
	// maxExplained is how many faults an error names.
	maxExplained = 20
	// maxName is how much of a resource's name is kept, in bytes.
	maxName = 200
)

// Update is the whole configuration, as a server has sent it.
type Update struct {
	Version string // the server's name for it
	// Files are the resources, sorted by name, as the text that means the same, so that
	// one parser checks both. Each is named after its resource.
	Files []rules.File

	places map[string][]place // what each line of a file is, by the file's name
}

// newUpdate reads a response. The error names resources that are none, or no rate limit
// configuration; then there is no Update.
func newUpdate(response *discovery.DiscoveryResponse) (*Update, error) {
	u := &Update{Version: response.GetVersionInfo(), places: map[string][]place{}}
	var errs []error
	for i, resource := range response.GetResources() {
		config := &pb.RateLimitConfig{}
		err := error(nil)
		if got := resource.GetTypeUrl(); got != typeURL {
			err = fmt.Errorf("it is a %.200q: send a %s", got, typeURL)
		} else if size := len(resource.GetValue()); size > rules.MaxFileBytes {
			err = fmt.Errorf("it has %d bytes, more than %d: send several, a domain a resource", size, rules.MaxFileBytes)
		} else {
			err = proto.Unmarshal(resource.GetValue(), config)
		}
		if err == nil {
			u.add(i, config)
			continue
		}
		if errs = append(errs, fmt.Errorf("resource %d: %w", i, err)); len(errs) == maxUnreadable {
			break
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	slices.SortStableFunc(u.Files, func(a, b rules.File) int { return strings.Compare(a.Name, b.Name) })
	return u, nil
}

// add adds resource i.
func (u *Update) add(i int, config *pb.RateLimitConfig) {
	name := config.GetName()
	if len(name) > maxName {
		name = strings.ToValidUTF8(name[:maxName], "") + "…"
	}
	if _, twice := u.places[name]; twice || name == "" {
		name = strings.TrimSpace(fmt.Sprintf("%s (resource %d)", name, i))
	}
	w := writer{}
	w.line(0, place{field: "domain"}, "domain: ", strconv.Quote(config.GetDomain()))
	w.descriptors(0, nil, config.GetDescriptors())
	u.Files = append(u.Files, rules.File{Name: name, Data: w.text.Bytes()})
	u.places[name] = w.places
}

// Explain says a fault of the files as the server knows it: the resource and the field,
// such as "listener: descriptors[2].rate_limit.unit", in place of the line of a text that
// it never saw.
func (u *Update) Explain(f rules.Fault) (at, message string) {
	placeOf := func(line int) (place, bool) {
		places := u.places[f.File]
		if line < 1 || line > len(places) {
			return place{}, false
		}
		return places[line-1], true
	}
	at = f.File
	if p, ok := placeOf(f.Line); ok {
		at += ": " + p.String()
	}
	return at, firstInLine.ReplaceAllStringFunc(f.Message, func(found string) string {
		line, _ := strconv.Atoi(firstInLine.FindStringSubmatch(found)[1])
		if p, ok := placeOf(line); ok {
			return "first in " + p.descriptor.String()
		}
		return found
	})
}

var firstInLine = regexp.MustCompile(`first in line ([0-9]+)`)

// explain returns the error with its rules.Faults explained, as many as are read.
func (u *Update) explain(err error) error {
	var faults rules.Faults
	if !errors.As(err, &faults) {
		return err
	}
	var lines []string
	for i, f := range faults {
		if i == maxExplained {
			lines = append(lines, fmt.Sprintf("and %d more faults", len(faults)-i))
			break
		}
		at, message := u.Explain(f)
		lines = append(lines, at+": "+message)
	}
	return errors.New(strings.Join(lines, "\n"))
}

// digest tells one response from another.
type digest [sha256.Size]byte

// digestOf is the same for responses that say the same. It is never zero.
func digestOf(u *Update, err error) digest {
	h := sha256.New()
	text := func(b []byte) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
		h.Write(b)
	}
	if err != nil {
		text([]byte(err.Error()))
		return digest(h.Sum(nil))
	}
	for _, f := range u.Files {
		text([]byte(f.Name))
		text(f.Data)
	}
	return digest(h.Sum(nil))
}

// place is a field of a resource.
type place struct {
	descriptor *descriptor // nil: the resource itself
	field      string
}

func (p place) String() string {
	return strings.Trim(p.descriptor.String()+"."+p.field, ".")
}

// descriptor is the place of one: its number, from 0, in the one above.
type descriptor struct {
	above *descriptor
	index int
}

func (d *descriptor) String() string {
	if d == nil {
		return ""
	}
	return strings.TrimPrefix(fmt.Sprintf("%s.descriptors[%d]", d.above, d.index), ".")
}

// writer writes a resource as text, and keeps the place of each line.
type writer struct {
	text   bytes.Buffer
	places []place
}

func (w *writer) line(indent int, at place, parts ...string) {
	for range indent {
		w.text.WriteString(" ")
	}
	for _, p := range parts {
		w.text.WriteString(p)
	}
	w.text.WriteString("\n")
	w.places = append(w.places, at)
}

// descriptors writes those below another, or as much as rules needs to refuse them.
func (w *writer) descriptors(level int, above *descriptor, all []*pb.RateLimitDescriptor) {
	if len(all) == 0 || level > maxLevels {
		return
	}
	indent := 2 * level
	w.line(indent, place{above, "descriptors"}, "descriptors:")
	for i, d := range all {
		if w.text.Len() > rules.MaxFileBytes {
			return
		}
		at := &descriptor{above, i}
		w.line(indent, place{at, "key"}, "- key: ", strconv.Quote(d.GetKey()))
		if d.GetValue() != "" {
			w.line(indent+2, place{at, "value"}, "value: ", strconv.Quote(d.GetValue()))
		}
		w.flag(indent+2, place{at, "shadow_mode"}, d.GetShadowMode())
		w.flag(indent+2, place{at, "detailed_metric"}, d.GetDetailedMetric())
		w.flag(indent+2, place{at, "quota_mode"}, quotaMode(d))
		if d.RateLimit != nil {
			w.limit(indent+2, at, d.RateLimit)
		}
		w.descriptors(level+1, at, d.GetDescriptors())
	}
}

func (w *writer) flag(indent int, at place, on bool) {
	if on {
		w.line(indent, at, at.field, ": true")
	}
}

// limit writes a rate_limit. What only the wire tells apart from what a file leaves out is
// written as if it was meant: no unit is the unit "unknown", no requests_per_unit is 0.
func (w *writer) limit(indent int, at *descriptor, l *pb.RateLimitPolicy) {
	field := func(indent int, name string, parts ...string) {
		w.line(indent, place{at, "rate_limit." + name}, parts...)
	}
	w.line(indent, place{at, "rate_limit"}, "rate_limit:")
	indent += 2
	if l.GetUnlimited() {
		field(indent, "unlimited", "unlimited: true")
	}
	if !l.GetUnlimited() || l.GetUnit() != pb.RateLimitUnit_UNKNOWN {
		field(indent, "unit", "unit: ", strconv.Quote(unitName(l.GetUnit())))
	}
	if !l.GetUnlimited() || l.GetRequestsPerUnit() != 0 {
		field(indent, "requests_per_unit", "requests_per_unit: ", strconv.FormatUint(uint64(l.GetRequestsPerUnit()), 10))
	}
	if l.GetName() != "" {
		field(indent, "name", "name: ", strconv.Quote(l.GetName()))
	}
	if len(l.GetReplaces()) > 0 {
		field(indent, "replaces", "replaces:")
	}
	for i, r := range l.GetReplaces() {
		field(indent, fmt.Sprintf("replaces[%d].name", i), "- name: ", strconv.Quote(r.GetName()))
	}
}

// unitName returns the name of a unit, or its number. The numbers are those of the rate
// limit protocol, which has more names for them than the generated code.
func unitName(u pb.RateLimitUnit) string {
	if unit := rules.Unit(u); u >= 0 && u <= pb.RateLimitUnit(rules.UnitWeek) {
		return unit.String()
	}
	return strconv.Itoa(int(u))
}

// quotaMode returns field 7 of a descriptor, bool quota_mode, which is newer than the
// generated code. As always on the wire, the last one counts.
func quotaMode(d *pb.RateLimitDescriptor) bool {
	const field = 7
	on := false
	for b := []byte(d.ProtoReflect().GetUnknown()); len(b) > 0; {
		number, kind, tag := protowire.ConsumeTag(b)
		size := protowire.ConsumeFieldValue(number, kind, b[max(tag, 0):])
		if tag < 0 || size < 0 {
			return on // cannot be: the message was read
		}
		if number == field && kind == protowire.VarintType {
			v, _ := protowire.ConsumeVarint(b[tag:])
			on = protowire.DecodeBool(v)
		}
		b = b[tag+size:]
	}
	return on
}
