package sink_test

import (
	"errors"
	"strings"
	"testing"

	"quern/artifacts/sink"
)

func TestParse(t *testing.T) {
	for _, c := range []struct{ in, at, kind, shown string }{
		{"out/model.gguf", "", "file", "out/model.gguf"},
		{"out/", "m.gguf", "file", "out/m.gguf"},
		{".", "m.gguf", "file", "m.gguf"},
		{"file:a:b", "", "file", "a:b"},
		{`C:\models\x.gguf`, "", "file", `C:\models\x.gguf`},
		{"./a:b", "", "file", "./a:b"},
		{"-", "", "stdout", "standard output"},
		{"stdout:", "", "stdout", "standard output"},
		{"adb:/data/local/tmp/m.gguf", "", "adb", "adb:/data/local/tmp/m.gguf"},
		{"adb:/data/local/tmp/", "m.gguf", "adb", "adb:/data/local/tmp/m.gguf"},
		{"adb:AB12:/sdcard/m", "", "adb", "adb:AB12:/sdcard/m"},
		{"adb:192.168.1.5:5555:/sdcard/", "m", "adb", "adb:192.168.1.5:5555:/sdcard/m"},
		{"ssh:box:/srv/m", "", "ssh", "ssh:box:/srv/m"},
		{"ssh:me@box:2222:/srv/", "m", "ssh", "ssh:me@box:2222:/srv/m"},
		{"ssh:box:models/m", "", "ssh", "ssh:box:models/m"},
		{"ssh:box:2222", "", "ssh", "ssh:box:2222"}, // a file of that name
		{"ssh://me@box:2222/srv/m", "", "ssh", "ssh:me@box:2222:/srv/m"},
		{"ssh://box/srv/m", "", "ssh", "ssh:box:/srv/m"},
		{"ssh:[::1]:22:/m", "", "ssh", "ssh:[::1]:22:/m"},
		{"ssh://[::1]/m", "", "ssh", "ssh:[::1]:/m"},
		{"https://me:pw@host/a/?sig=1", "m q.gguf", "http", "https://host/a/m%20q.gguf"},
		{"http://host:81/m", "", "http", "http://host:81/m"},
		{"http://host/", "m", "http", "http://host/m"},
		{"flash:img.bin?offset=0x10000&partition-size=1MiB", "", "flash", "flash:img.bin"},
	} {
		tg, err := sink.Parse(c.in)
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		if tg.Folder != (c.at != "") {
			t.Errorf("%s: folder %v", c.in, tg.Folder)
		}
		if tg = tg.At(c.at); string(tg.Kind) != c.kind || tg.String() != c.shown {
			t.Errorf("%s: %s, %s", c.in, tg.Kind, tg)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for in, says := range map[string]string{
		"":                                    "empty",
		"adb:":                                "adb:/PATH",
		"adb:relative":                        "adb:/PATH",
		"adb:/":                               "no file or folder",
		"adb:-s:/x":                           "serial number",
		"ssh:box":                             "ssh:[USER@]HOST",
		"ssh:-oProxyCommand=id:/x":            "no host",
		"ssh:-l@box:/x":                       "no host",
		"ssh:@box:/x":                         "user",
		"ssh://me:pw@box/x":                   "no password",
		"ssh:box:":                            "no file or folder",
		"ssh:box:99999:/x":                    "port",
		"ssh:[::1:/x":                         "want",
		"ssh:a b:/x":                          "space",
		"ssh:box:/a\nb":                       "control",
		"adb:/a\x00b":                         "control",
		"http://host":                         "no file or folder",
		"http://host/x#y":                     "fragment",
		"http://me:s3cret@ho st/x":            "cannot be read",
		"scp:box:/x":                          "unknown kind",
		"stdout:x":                            "no path",
		"flash:?partition-size=1M":            "no image file",
		"flash:x":                             "partition-size is missing",
		"flash:x?partition-size=1M&ofset=1":   `unknown key "ofset"`,
		"flash:x?partition-size=1000":         "no multiple of the sector",
		"flash:x?partition-size=1M&offset=1":  "no multiple of the sector",
		"flash:x?partition-size=1M&offset=2M": "beyond",
		"flash:x?partition-size=1M&offset=4K&map=64K":    "no multiple of map",
		"flash:x?partition-size=99999999999999999999":    "no size",
		"flash:x?partition-size=1M&sector=3":             "power of two",
		"flash:x?partition-size=1M&partition-size=2M":    "2 times",
		"flash:x?partition-size=1048576T":                "no size",
		"flash:x?partition-size=9223372036854775807MiB":  "no size",
		"flash:x?partition-size=1M&offset=0x80000000000": "no size",
	} {
		_, err := sink.Parse(in)
		if !errors.Is(err, sink.ErrSyntax) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v, want %q", in, err, says)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"-", "a/", "adb:x:/y", "ssh:me@[::1]:22:/x", "ssh://h:1/x", "https://u:p@h/x?y", "flash:a?offset=4K&partition-size=1M"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tg, err := sink.Parse(s)
		if err != nil {
			if !errors.Is(err, sink.ErrSyntax) {
				t.Errorf("%q: %v", s, err)
			}
			return
		}
		at := tg.At("name")
		if at.Folder && tg.Folder {
			t.Errorf("%q: a file in a folder is a folder", s)
		}
		if strings.HasPrefix(tg.Host, "-") || strings.HasPrefix(tg.User, "-") {
			t.Errorf("%q: host %q, user %q", s, tg.Host, tg.User)
		}
		_ = at.String()
	})
}
