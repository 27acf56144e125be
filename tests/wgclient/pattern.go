package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// The content of every transfer: a pseudo-random block, repeated. Its length is
// prime, so a packet that is lost, doubled or moved shifts the content against
// any power of two and any segment size. tests/bench/pattern.py makes the same.
const patternPeriod = 65521

// pattern holds two periods, so that any piece of up to one period is a slice.
var pattern = makePattern()

func makePattern() []byte {
	block := make([]byte, 0, 2*patternPeriod+8)
	state := uint64(0x9E3779B97F4A7C15) // xorshift64*
	for len(block) < patternPeriod {
		state ^= state >> 12
		state ^= state << 25
		state ^= state >> 27
		block = binary.LittleEndian.AppendUint64(block, state*0x2545F4914F6CDD1D)
	}
	block = block[:patternPeriod]
	return append(block, block...)
}

// patternAt is the content from offset on, up to size bytes, at most a period.
func patternAt(offset uint64, size int) []byte {
	start := int(offset % patternPeriod)
	return pattern[start : start+min(size, patternPeriod)]
}

// checkPattern compares data with the content at offset.
func checkPattern(data []byte, offset uint64) error {
	for len(data) > 0 {
		want := patternAt(offset, len(data))
		if !bytes.Equal(data[:len(want)], want) {
			return fmt.Errorf("the content differs within %d bytes from offset %d", len(want), offset)
		}
		data = data[len(want):]
		offset += uint64(len(want))
	}
	return nil
}
