//go:build tools || generate

package parley

import _ "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen"

//go:generate go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen -config gen/config.yaml openapi.yaml
//go:generate go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen -config client/config.yaml openapi.yaml
