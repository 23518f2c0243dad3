package weir

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash/maphash"
	"math/bits"
	"net/netip"
)

type keyKind uint8

const (
	noKey keyKind = iota
	textKey
	partsKey
	addrKey
)

// Key is who is limited. Keys are comparable, and keys of different kinds never
// meet: Text("127.0.0.1") and the Addr of 127.0.0.1 are two clients. The zero Key is
// nobody and every use of it is an error; Text("") is a key like any other.
type Key struct {
	text   string
	hi, lo uint64 // the address
	kind   keyKind
}

// Text returns the key of a name: a user, a tenant, an API key. Any bytes will do; those
// of a slice are Text(string(b)).
func Text(s string) Key { return Key{kind: textKey, text: s} }

// Parts returns the key of several texts together. It is injective: Parts("a", "bc")
// is not Parts("ab", "c").
func Parts(parts ...string) Key {
	n := 0
	for _, p := range parts {
		n += binary.MaxVarintLen64 + len(p)
	}
	b := make([]byte, 0, n)
	for _, p := range parts {
		b = append(binary.AppendUvarint(b, uint64(len(p))), p...)
	}
	return Key{kind: partsKey, text: string(b)}
}

// Addr returns the key of an address. An IPv4 address mapped to IPv6 is the IPv4
// address, and a zone is left out. The invalid address gives the zero Key.
func Addr(a netip.Addr) Key {
	if !a.IsValid() {
		return Key{}
	}
	b := a.As16() // IPv4 as mapped: the two forms are one key
	return Key{kind: addrKey, hi: binary.BigEndian.Uint64(b[:8]), lo: binary.BigEndian.Uint64(b[8:])}
}

// IsZero reports whether k is the zero Key, which stands for nobody.
func (k Key) IsZero() bool { return k.kind == noKey }

// Text returns the text of a key that the function Text made, and false for every other
// key. It is for stores whose keys others write too, as text; whoever logs it logs what a
// client sent.
func (k Key) Text() (string, bool) { return k.text, k.kind == textKey }

// String returns the key as stores that keep text write it: the text itself if it is
// 1 to 64 of A-Z a-z 0-9 . _ -, an address behind "@", anything else as "~" and the
// first 128 bits of the SHA-256 of its length-prefixed parts in hexadecimal. It is
// at most 64 bytes long, safe in logs and in Redis keys, and as injective as SHA-256.
func (k Key) String() string { return string(k.Append(nil)) }

// Append appends String to b.
func (k Key) Append(b []byte) []byte {
	switch {
	case k.kind == noKey:
		return b
	case k.kind == addrKey:
		return k.addr().AppendTo(append(b, '@'))
	case k.kind == textKey && plain(k.text):
		return append(b, k.text...)
	}
	h := sha256.New()
	h.Write([]byte{byte(k.kind)})
	h.Write([]byte(k.text))
	var sum [sha256.Size]byte
	return hex.AppendEncode(append(b, '~'), h.Sum(sum[:0])[:16])
}

// Hash returns 128 bits of the key under two seeds, for stores that keep a hash in
// place of the key. Without the seeds nobody can make keys that collide.
func (k Key) Hash(a, b maphash.Seed) (hi, lo uint64) {
	if k.kind != addrKey {
		return maphash.String(a, k.text) + uint64(k.kind), maphash.String(b, k.text) + uint64(k.kind)
	}
	var bytes [16]byte
	binary.LittleEndian.PutUint64(bytes[:8], k.hi)
	binary.LittleEndian.PutUint64(bytes[8:], k.lo)
	return bits.RotateLeft64(maphash.Bytes(a, bytes[:]), 32), bits.RotateLeft64(maphash.Bytes(b, bytes[:]), 32)
}

func (k Key) addr() netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], k.hi)
	binary.BigEndian.PutUint64(b[8:], k.lo)
	return netip.AddrFrom16(b).Unmap()
}

func plain(s string) bool {
	if len(s) == 0 || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}
