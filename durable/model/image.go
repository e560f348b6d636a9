package model

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	_ "image/gif" // decoders of what models take
	_ "image/jpeg"
	_ "image/png"
)

// The limits of images that every provider accepts.
const (
	MaxImageBytes = 3_750_000 // 5 MB as base64
	MaxImageSide  = 8000      // pixels
)

// CheckImage reports why an image must not enter a transcript, where it would
// be sent again with every request: its type is not png, jpeg, gif or webp, its
// data is not of that type, or it is too large.
func CheckImage(mimeType string, data []byte) error {
	if len(data) > MaxImageBytes {
		return fmt.Errorf("image of %d bytes is over the limit of %d", len(data), MaxImageBytes)
	}
	var width, height int
	var format string
	switch mimeType {
	case "image/png", "image/jpeg", "image/gif":
		c, f, err := image.DecodeConfig(bytes.NewReader(data))
		if err != nil {
			return fmt.Errorf("image is not readable as %s: %w", mimeType, err)
		}
		width, height, format = c.Width, c.Height, "image/"+f
	case "image/webp":
		w, h, ok := webpSize(data)
		if !ok {
			return fmt.Errorf("image is not readable as %s", mimeType)
		}
		width, height, format = w, h, mimeType
	default:
		return fmt.Errorf("image type %q is not supported: want image/png, image/jpeg, image/gif or image/webp", mimeType)
	}
	if format != mimeType {
		return fmt.Errorf("image is %s, not %s", format, mimeType)
	}
	if width < 1 || height < 1 || width > MaxImageSide || height > MaxImageSide {
		return fmt.Errorf("image of %d x %d pixels: each side must be 1 to %d", width, height, MaxImageSide)
	}
	return nil
}

// webpSize reads the canvas size from the first chunk of a WebP file.
func webpSize(data []byte) (width, height int, ok bool) {
	if len(data) < 30 || string(data[:4]) != "RIFF" || string(data[8:12]) != "WEBP" {
		return 0, 0, false
	}
	switch string(data[12:16]) {
	case "VP8 ": // lossy: a key frame's start code, then two 14-bit sizes
		if data[23] != 0x9d || data[24] != 0x01 || data[25] != 0x2a {
			return 0, 0, false
		}
		w := binary.LittleEndian.Uint16(data[26:]) & 0x3fff
		h := binary.LittleEndian.Uint16(data[28:]) & 0x3fff
		return int(w), int(h), true
	case "VP8L": // lossless: two 14-bit sizes, less one, behind a signature
		if data[20] != 0x2f {
			return 0, 0, false
		}
		bits := binary.LittleEndian.Uint32(data[21:])
		return int(bits&0x3fff) + 1, int(bits>>14&0x3fff) + 1, true
	case "VP8X": // extended: two 24-bit sizes, less one
		w := int(data[24]) | int(data[25])<<8 | int(data[26])<<16
		h := int(data[27]) | int(data[28])<<8 | int(data[29])<<16
		return w + 1, h + 1, true
	}
	return 0, 0, false
}
