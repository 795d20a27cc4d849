package main

import "testing"

func TestIdentify(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		name     string
		rejected bool
	}{
		"                   GNU LESSER GENERAL PUBLIC LICENSE\n                       Version 3, 29 June 2007\n": {"LGPL", true},
		"                    GNU GENERAL PUBLIC LICENSE\n                       Version 2, June 1991\n":          {"GPL", true},
		"                    GNU AFFERO GENERAL PUBLIC LICENSE\n                       Version 3\n":              {"AGPL", true},
		"                                 Apache License\n                           Version 2.0, January 2004\n" +
			"   TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION\n": {"Apache-2.0", false},
		"All rights reserved.": {},
		"":                     {},
	} {
		if name, rejected := identify([]byte(text)); name != want.name || rejected != want.rejected {
			t.Errorf("%q is identified as %q, rejected %v; want %q, %v", text, name, rejected, want.name, want.rejected)
		}
	}
}
