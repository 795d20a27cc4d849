// The program checks that values and fields of a newer server do not break the clients that ogen and OpenAPI Generator make, and
// that a charge that nobody knows yet is not a false.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"generators/ogen"
	"generators/openapigenerator"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	file, err := os.ReadFile(os.Args[1])
	if err != nil {
		return err
	}
	var ofOgen struct {
		Error  ogen.ParleyError `json:"error"`
		Unread ogen.UnreadPage  `json:"unread"`
	}
	if err := json.Unmarshal(file, &ofOgen); err != nil {
		return fmt.Errorf("ogen: %w", err)
	}
	if e, u := ofOgen.Error, ofOgen.Unread; e.Code != "code_of_a_newer_server" || e.Charged.Set || u.Notices[0].Type != "type_of_a_newer_server" {
		return fmt.Errorf("ogen reads %+v", ofOgen)
	}
	if err := ofOgen.Unread.Validate(); err != nil {
		return fmt.Errorf("ogen: %w", err)
	}
	var ofOpenAPIGenerator struct {
		Error  openapigenerator.ParleyError `json:"error"`
		Unread openapigenerator.UnreadPage  `json:"unread"`
	}
	if err := json.Unmarshal(file, &ofOpenAPIGenerator); err != nil {
		return fmt.Errorf("OpenAPI Generator: %w", err)
	}
	if e, u := ofOpenAPIGenerator.Error, ofOpenAPIGenerator.Unread; e.Code != "code_of_a_newer_server" || e.Charged != nil || u.Notices[0].Type != "type_of_a_newer_server" {
		return fmt.Errorf("OpenAPI Generator reads %+v", ofOpenAPIGenerator)
	}
	return nil
}
