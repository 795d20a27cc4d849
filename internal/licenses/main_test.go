package main

import "testing"

func TestIdentify(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		name    string
		refused bool
	}{
		"                   GNU LESSER GENERAL PUBLIC LICENSE\n                       Version 3, 29 June 2007\n": {"LGPL", true},
		"                    GNU GENERAL PUBLIC LICENSE\n                       Version 2, June 1991\n":          {"GPL", true},
		"                    GNU AFFERO GENERAL PUBLIC LICENSE\n                       Version 3\n":              {"AGPL", true},
		"                                 Apache License\n                           Version 2.0, January 2004\n" +
			"   TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION\n": {"Apache-2.0", false},
		"All rights reserved.": {},
		"":                     {},
	} {
		if name, refused := identify([]byte(text)); name != want.name || refused != want.refused {
			t.Errorf("%q is identified as %q, refused %v; want %q, %v", text, name, refused, want.name, want.refused)
		}
	}
}
