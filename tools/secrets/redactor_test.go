package secrets

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const (
	apiKey   = "sk-ant-api03-Zq8/xY+7=wL_2"
	password = `p"ss <w&rd> ü%41`
)

func newTestRedactor(t testing.TB, values ...string) *Redactor {
	t.Helper()
	r := NewRedactor()
	for i, v := range values {
		require.NoError(t, r.Add(fmt.Sprintf("secret %d", i), v))
	}
	return r
}

// (S1.3)
func TestRedactor_String(t *testing.T) {
	t.Parallel()
	r := newTestRedactor(t, apiKey, password, "abcdefghij", "ghijklmnop")
	tests := []struct{ name, in, want string }{
		{"nothing to hide", "an ordinary text with 100% of it shown", "an ordinary text with 100% of it shown"},
		{"alone", apiKey, Mask},
		{"in a text", "key=" + apiKey + ", that is it", "key=" + Mask + ", that is it"},
		{"twice, next to each other", apiKey + apiKey, Mask + Mask},
		{"all but the last byte is text", apiKey[:len(apiKey)-1], apiKey[:len(apiKey)-1]},
		{"overlapping ones are one", "-abcdefghijklmnop-", "-" + Mask + "-"},
		{"URL-encoded", "?k=" + url.QueryEscape(apiKey), "?k=" + Mask},
		{"URL-encoded in a path", "/" + url.PathEscape(apiKey) + "/x", "/" + Mask + "/x"},
		{"every byte escaped, mixed case", "a%61%62%63%64%65%66%67%68%69%6a%6B", "a" + Mask + "%6B"},
		{"an escape cut off at the end", "abcdefghij%4", Mask + "%4"},
		{"a percent sign that is no escape", "100%abcdefghij%zz", "100%" + Mask + "%zz"},
		{"JSON string", `{"a":` + jsonString(password) + `}`, `{"a":"` + Mask + `"}`},
		{"Go string", "a=" + strconv.Quote(password), `a="` + Mask + `"`},
		{"empty", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, r.String(tt.in))
			require.Equal(t, tt.want, string(r.Bytes([]byte(tt.in))))
		})
	}
}

func jsonString(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// (S1.3) At each of the three alignments, in both alphabets, also URL-encoded
// on top.
func TestRedactor_Base64(t *testing.T) {
	t.Parallel()
	r := newTestRedactor(t, apiKey)
	for name, enc := range map[string]*base64.Encoding{
		"standard": base64.StdEncoding, "URL": base64.URLEncoding,
		"raw standard": base64.RawStdEncoding, "raw URL": base64.RawURLEncoding,
	} {
		for before := range 6 {
			for after := range 4 {
				plain := strings.Repeat("x", before) + apiKey + strings.Repeat("y", after)
				text := enc.EncodeToString([]byte(plain))
				for _, shown := range []string{text, url.QueryEscape(text)} {
					masked := r.String(shown)
					require.Contains(t, masked, Mask, "%s, %d before, %d after", name, before, after)
					// What is left are characters shared with a neighbour.
					require.LessOrEqual(t, len(strings.Replace(masked, Mask, "", 1)), before*4/3+after*4/3+2+4+2*3)
				}
			}
		}
	}
}

// wrap breaks text into lines.
func wrap(text string, columns int, lineBreak string) string {
	var lines []string
	for len(text) > columns {
		lines = append(lines, text[:columns])
		text = text[columns:]
	}
	return strings.Join(append(lines, text), lineBreak)
}

// (S1.3) Base64 is also found where a program has broken it into lines, as text
// and in JSON strings, whole and in pieces.
func TestRedactor_WrappedBase64(t *testing.T) {
	t.Parallel()
	r := newTestRedactor(t, apiKey)
	for before := range 120 {
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + apiKey + strings.Repeat("y", 90)))
		for _, columns := range []int{76, 64, 8} {
			for _, br := range []string{"\n", "\r\n"} {
				wrapped := wrap(text, columns, br)
				masked := r.String(wrapped)
				require.Contains(t, masked, Mask, "%d before: %q", before, wrapped)
				require.Equal(t, 1, strings.Count(masked, Mask))
				require.True(t, strings.HasPrefix(wrapped, masked[:strings.Index(masked, Mask)]))
				inJSON := jsonString(wrapped)
				require.JSONEq(t, jsonString(masked), string(r.JSON([]byte(inJSON))))
				require.Contains(t, r.String(inJSON), Mask, "JSON as text")
				for _, s := range []*Stream{r.Stream(), r.JSONStream()} {
					var streamed string
					for i := range len(inJSON) {
						streamed += s.Next(inJSON[i : i+1])
					}
					require.JSONEq(t, jsonString(masked), streamed+s.End())
				}
			}
		}
	}
	text := base64.StdEncoding.EncodeToString([]byte(apiKey))
	require.Equal(t, text[:10]+"\n\n"+text[10:], r.String(text[:10]+"\n\n"+text[10:]), "one break at a place")
	require.Equal(t, apiKey[:10]+"\n"+apiKey[10:], r.String(apiKey[:10]+"\n"+apiKey[10:]), "only base64 is broken into lines")
}

// (S1.3) In JSON that comes in pieces, secrets are found however they are
// escaped, and the result is that of the whole.
func TestStream_JSON(t *testing.T) {
	t.Parallel()
	r := newTestRedactor(t, apiKey, password, "pass\U0001F511word")
	escaped := ""
	for _, c := range apiKey {
		escaped += fmt.Sprintf(`\u%04X`, c)
	}
	for in, want := range map[string]string{
		`{"a":"` + escaped + `","b":"\u00e4\n"}`:        `{"a":"` + Mask + `","b":"\u00e4\n"}`,
		`{"a":` + jsonString(password) + `}`:            `{"a":"` + Mask + `"}`,
		`{"a":"pass\ud83d\uDD11word"}`:                  `{"a":"` + Mask + `"}`,
		`{"a":"\ud83d\u0041 \x \u00zz \ud83d"}`:         `{"a":"\ud83d\u0041 \x \u00zz \ud83d"}`,
		`{"a":"` + apiKey[:12] + `\`:                    `{"a":"` + apiKey[:12] + `\`,
		`{"a":"` + url.QueryEscape(apiKey) + `\u002`:    `{"a":"` + Mask + `\u002`,
		`{"path":"` + apiKey[:9] + `\\` + apiKey + `"}`: `{"path":"` + apiKey[:9] + `\\` + Mask + `"}`,
	} {
		s := r.JSONStream()
		require.Equal(t, want, s.Next(in)+s.End())
		for cut := range len(in) {
			require.Equal(t, want, s.Next(in[:cut])+s.Next(in[cut:])+s.End(), "cut at %d", cut)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := jsonString(genText([]string{apiKey, password, "abcdabcd"}).Draw(t, "text"))
		s := r.JSONStream()
		whole := s.Next(text) + s.End()
		var streamed string
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			streamed += s.Next(rest[:n])
			rest = rest[n:]
		}
		require.Equal(t, whole, streamed+s.End())
		require.True(t, json.Valid([]byte(whole)))
		require.JSONEq(t, string(r.JSON([]byte(text))), whole)
	})
}

func TestStream_NothingIsCopied(t *testing.T) {
	none, r := NewRedactor(), newTestRedactor(t, apiKey)
	text := strings.Repeat("a line of text that holds nothing\n", 20)
	for name, s := range map[string]*Stream{"no secrets": none.Stream(), "no match": r.Stream(), "JSON": r.JSONStream()} {
		require.Zero(t, testing.AllocsPerRun(100, func() { s.Next(text) }), name)
	}
}

func TestRedactor_Add(t *testing.T) {
	t.Parallel()
	r := NewRedactor()
	require.Equal(t, "1234567", r.String("1234567"))
	err := r.Add("OPENAI_API_KEY", "long enough", "1234567")
	require.ErrorContains(t, err, "OPENAI_API_KEY")
	require.NotContains(t, err.Error(), "1234567")
	require.Equal(t, "long enough", r.String("long enough"), "a refused call adds nothing")

	require.NoError(t, r.Add("A", "", "12345678"))
	require.NoError(t, r.Add("B", "87654321", "12345678"))
	require.Equal(t, Mask+" "+Mask, r.String("12345678 87654321"))

	var none *Redactor
	require.Equal(t, "12345678", none.String("12345678"))
	require.Equal(t, []byte("12345678"), none.Bytes([]byte("12345678")))
	require.Equal(t, []byte(`"12345678"`), none.JSON([]byte(`"12345678"`)))
}

func TestRedactor_BytesWithoutSecretsIsNotCopied(t *testing.T) {
	t.Parallel()
	r := newTestRedactor(t, apiKey)
	b := []byte(strings.Repeat("nothing here ", 10000))
	require.Same(t, &b[0], &r.Bytes(b)[0])
	j := []byte(jsonString(string(b)))
	require.Same(t, &j[0], &r.JSON(j)[0])
}

func TestRedactor_LongText(t *testing.T) {
	t.Parallel()
	r := newTestRedactor(t, apiKey)
	// The secret lies at every place around the border of a block, escaped and
	// not, in a text with escapes.
	for shift := -3 * len(apiKey); shift <= 3; shift++ {
		for _, shown := range []string{apiKey, url.QueryEscape(apiKey)} {
			head := "%41" + strings.Repeat("x", block+shift-3)
			require.Equal(t, head+Mask+"tail", r.String(head+shown+"tail"), "shift %d", shift)
		}
	}
}

func TestRedactor_JSON(t *testing.T) {
	t.Parallel()
	r := newTestRedactor(t, apiKey, password, "12345678", "nextline!", `\"\\\"\\`)
	tests := []struct{ name, in, want string }{
		{"a value", `{"a":"12345678"}`, `{"a":"` + Mask + `"}`},
		{"a key", `{"12345678":1}`, `{"` + Mask + `":1}`},
		{"a number stays", `{"a":12345678,"b":[12345678]}`, `{"a":12345678,"b":[12345678]}`},
		{"escaped in any way", `["\u0031234567\u0038"]`, `["` + Mask + `"]`},
		{"escaped HTML", `{"p":` + jsonString(password) + `}`, `{"p":"` + Mask + `"}`},
		{"JSON in JSON", `{"p":` + jsonString(`{"q":`+jsonString(password)+`}`) + `}`, `{"p":"{\"q\":\"` + Mask + `\"}"}`},
		{"not across an escape", `["\nextline!"]`, `["\nextline!"]`},
		{"quotes and backslashes", `{"a":` + jsonString(`\"\\\"\\`) + `}`, `{"a":"` + Mask + `"}`},
		{"unfinished", `{"a":"12345678`, `{"a":"` + Mask},
		{"other escapes stay", `{"a":"\u00fc 12345678","b":"\u00fc"}`, `{"a":"ü ` + Mask + `","b":"\u00fc"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, string(r.JSON([]byte(tt.in))))
		})
	}
}

// genText makes texts out of pieces that matter: secrets, their beginnings and
// ends, encoded in every way, and characters that are special.
func genText(values []string) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		var b strings.Builder
		for range rapid.IntRange(0, 12).Draw(t, "pieces") {
			v := rapid.SampledFrom(values).Draw(t, "value")
			from := rapid.IntRange(0, len(v)).Draw(t, "from") * rapid.IntRange(0, 1).Draw(t, "whole head")
			to := len(v) - rapid.IntRange(0, len(v)-from).Draw(t, "to")*rapid.IntRange(0, 1).Draw(t, "whole tail")
			part := v[from:to]
			switch rapid.IntRange(0, 6).Draw(t, "how") {
			case 0:
				b.WriteString(part)
			case 1:
				b.WriteString(escapeSome(t, part))
			case 2:
				b.WriteString(base64.StdEncoding.EncodeToString([]byte(part)))
			case 3:
				b.WriteString(base64.URLEncoding.EncodeToString([]byte("x" + part)))
			case 4:
				b.WriteString(jsonString(part))
			case 5:
				b.WriteString(wrap(base64.StdEncoding.EncodeToString([]byte(part)), rapid.IntRange(1, 20).Draw(t, "columns"),
					rapid.SampledFrom([]string{"\n", "\r\n", `\n`, `\r\n`}).Draw(t, "break")))
			default:
				b.WriteString(rapid.StringMatching(`[a-d%1-4"\\ ]{0,6}`).Draw(t, "filler"))
			}
		}
		return b.String()
	})
}

// escapeSome URL-encodes some bytes of s.
func escapeSome(t *rapid.T, s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch rapid.IntRange(0, 2).Draw(t, "escape") {
		case 0:
			fmt.Fprintf(&b, "%%%02x", s[i])
		case 1:
			fmt.Fprintf(&b, "%%%02X", s[i])
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// However a text is cut, the result is that of the whole, and no secret is in
// it, in any encoding.
func TestRedactor_Property(t *testing.T) {
	t.Parallel()
	values := []string{apiKey, password, "abcdabcd", "dabcdabcdabc", "abcdabcde", "41414141", "%41%42%43"}
	r := newTestRedactor(t, values...)
	rapid.Check(t, func(t *rapid.T) {
		text := genText(values).Draw(t, "text")
		whole := r.String(text)

		var out bytes.Buffer
		w := r.Writer(&out)
		s := r.Stream()
		var streamed string
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			_, err := w.Write([]byte(rest[:n]))
			require.NoError(t, err)
			streamed += s.Next(rest[:n])
			rest = rest[n:]
		}
		require.NoError(t, w.Flush())
		require.Equal(t, whole, out.String())
		require.Equal(t, whole, streamed+s.End())

		for _, v := range values {
			require.NotContains(t, whole, v)
			plain, _ := url.PathUnescape(lenient(whole))
			require.NotContains(t, plain, v)
		}
	})
}

// lenient escapes percent signs that are no escapes.
func lenient(s string) string {
	decoded, offsets, pending := unescape([]byte(s))
	var b strings.Builder
	for i := range decoded {
		if s[offsets[i]] == '%' && offsets[i+1]-offsets[i] == 1 {
			b.WriteString("%25")
			continue
		}
		b.WriteString(s[offsets[i]:offsets[i+1]])
	}
	return b.String() + strings.ReplaceAll(s[pending:], "%", "%25")
}

// A value that is encoded in the middle of something is found at every place.
func TestRedactor_PropertyEncoded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringMatching(`[!-~]{8,80}`).Draw(t, "value")
		r := NewRedactor()
		require.NoError(t, r.Add("secret", value))
		around := rapid.StringMatching(`[ -~]{0,5}`)
		plain := around.Draw(t, "before") + value + around.Draw(t, "after")
		for _, shown := range []string{
			plain, escapeSome(t, plain), jsonString(plain), strconv.Quote(plain),
			base64.StdEncoding.EncodeToString([]byte(plain)),
			base64.RawURLEncoding.EncodeToString([]byte(plain)),
			escapeSome(t, base64.StdEncoding.EncodeToString([]byte(plain))),
		} {
			require.Contains(t, r.String(shown), Mask, "shown as %q", shown)
		}
		masked := r.JSON([]byte(jsonString(plain)))
		require.Contains(t, string(masked), Mask)
		require.True(t, json.Valid(masked))
	})
}

func FuzzRedactor_Chunks(f *testing.F) {
	f.Add("abcdabcd%61bcdabcd", uint8(3), "abcdabcd", "bcdabcda%41")
	f.Add("%4%41%%414141414", uint8(1), "41414141", "A4141414")
	f.Fuzz(func(t *testing.T, text string, size uint8, a, b string) {
		r := NewRedactor()
		if r.Add("a", a) != nil || r.Add("b", b) != nil || len(a)+len(b) > 1000 {
			t.Skip("not a secret")
		}
		whole := r.String(text)
		s := r.Stream()
		var streamed string
		for rest := text; rest != ""; {
			n := min(int(size)+1, len(rest))
			streamed += s.Next(rest[:n])
			rest = rest[n:]
		}
		require.Equal(t, whole, streamed+s.End())
		if json.Valid([]byte(text)) {
			require.True(t, json.Valid(r.JSON([]byte(text))))
		}
	})
}

func TestStream_ShowsWhatIsNoSecretAtOnce(t *testing.T) {
	t.Parallel()
	r := newTestRedactor(t, apiKey)
	s := r.Stream()
	require.Equal(t, "the key is ", s.Next("the key is s"))
	require.Empty(t, s.Next(apiKey[1:20]))
	require.Equal(t, apiKey[:20]+"?", s.Next("?"))
	require.Empty(t, s.Next(apiKey[:8]))
	require.Equal(t, Mask+" it was.", s.Next(apiKey[8:]+" it was."))
	require.Equal(t, " 10", s.Next(" 10%"))
	require.Equal(t, "% of it", s.Next(" of it"))
	require.Empty(t, s.End())
	require.Empty(t, s.Next("sk-"))
	require.Equal(t, "sk-", s.End())
	require.True(t, s.Found(), "in the text before")
	s = r.Stream()
	require.Empty(t, s.Next(apiKey[:9]))
	require.False(t, s.Found())
	require.Empty(t, s.Next(apiKey[9:20]))
	require.Equal(t, apiKey[:20], s.End())
	require.False(t, s.Found())
	require.Equal(t, Mask, s.Next(apiKey)+s.End())
	require.True(t, s.Found())
}

// A cut next to an escape does not make its characters text.
func TestStream_EscapesAreNotTakenApart(t *testing.T) {
	t.Parallel()
	r := newTestRedactor(t, "41abcdef")
	text := "%41%61bcdef" // "Aabcdef": not the secret
	require.Equal(t, text, r.String(text))
	for cut := range len(text) {
		s := r.Stream()
		require.Equal(t, text, s.Next(text[:cut])+s.Next(text[cut:])+s.End(), "cut at %d", cut)
	}
}

func TestWriter_Error(t *testing.T) {
	t.Parallel()
	r := newTestRedactor(t, apiKey)
	w := r.Writer(failing{})
	_, err := w.Write([]byte("text"))
	require.ErrorIs(t, err, errFull)
	_, err = w.Write([]byte("sk-ant"))
	require.NoError(t, err, "nothing was passed on yet")
	require.ErrorIs(t, w.Flush(), errFull)
}

var errFull = fmt.Errorf("full")

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errFull }

func BenchmarkRedactor_Bytes(b *testing.B) {
	for _, n := range []int{1, 10, 1000} {
		b.Run(strconv.Itoa(n)+" secrets", func(b *testing.B) {
			r := NewRedactor()
			values := make([]string, n)
			for i := range values {
				values[i] = fmt.Sprintf("sk-%d-%s", i, strings.Repeat("q7Z", 20))
			}
			if err := r.Add("secret", values...); err != nil {
				b.Fatal(err)
			}
			text := []byte(strings.Repeat("The quick brown fox jumps over the lazy dog. sk-7 is no key.\n", 2000))
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				r.Bytes(text)
			}
		})
	}
}
