package x402

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

const (
	// listingPage is how many resources are asked for at once; facilitators may return fewer.
	listingPage = 100
	// maxListingPages limits the calls. The largest catalogue has about 15,000 resources.
	maxListingPages = 500
)

// ErrNoCatalogue means that the facilitator has no catalogue.
var ErrNoCatalogue = errors.New("the facilitator has no catalogue")

// Listing is an entry of a facilitator's catalogue (extension "bazaar").
type Listing struct {
	Resource    string    `json:"resource"`
	LastUpdated time.Time `json:"lastUpdated"`
}

// Listings returns the entries of the facilitator's catalogue whose URL begins with base. It asks for those of the payee; a facilitator
// that cannot select them is asked for all. It returns ErrNoCatalogue if there is neither.
func (f *Facilitator) Listings(ctx context.Context, payTo, base string) ([]Listing, error) {
	found, err := f.listings(ctx, "discovery/merchant?payTo="+url.QueryEscape(payTo), base)
	if notFound(err) {
		found, err = f.listings(ctx, "discovery/resources?type=http", base)
	}
	if notFound(err) {
		return nil, ErrNoCatalogue
	}
	return found, err
}

func notFound(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	return ok && status.Status >= http.StatusBadRequest && status.Status < http.StatusInternalServerError &&
		status.Status != http.StatusTooManyRequests
}

// listings reads all pages of an endpoint. The catalogue may change meanwhile, so the total is not compared.
func (f *Facilitator) listings(ctx context.Context, endpoint, base string) (found []Listing, err error) {
	public := *f // the catalogue is public, and a credential for /settle need not be valid here
	public.AuthHeaders = nil
	for page, offset := 0, 0; page < maxListingPages; page++ {
		var read struct {
			Items, Resources []Listing // of /discovery/resources, and of /discovery/merchant
			Pagination       struct{ Total int }
		}
		err := public.repeat(ctx, http.MethodGet, fmt.Sprintf("%s&limit=%d&offset=%d", endpoint, listingPage, offset), nil, maxAttempts,
			func(response *rawResponse) bool {
				return response.status == http.StatusOK &&
					json.Unmarshal(response.body, &read, json.MatchCaseInsensitiveNames(true)) == nil
			})
		if err != nil {
			return nil, err
		}
		entries := slices.Concat(read.Items, read.Resources)
		for _, one := range entries {
			if strings.HasPrefix(one.Resource, base) {
				found = append(found, one)
			}
		}
		offset += len(entries)
		if len(entries) == 0 || offset >= read.Pagination.Total {
			return found, nil
		}
	}
	return nil, errors.New("the facilitator's catalogue has no end")
}
