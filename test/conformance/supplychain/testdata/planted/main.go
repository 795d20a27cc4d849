// Command planted calls a function with a known vulnerability, GO-2021-0113.
package main

import "golang.org/x/text/language"

func main() { _, _ = language.Parse("") }
